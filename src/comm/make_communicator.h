// Chooses and builds a communicator.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/rendezvous.h"

namespace plait::comm {

struct GroupSpec {
  std::string name;  // unique among the job's groups; prefixes the rendezvous keys
  int rank = 0;      // of this process or thread within the group
  int size = 1;
  Device device;  // where its data lives: cuda → NCCL, host → Gloo
  std::chrono::milliseconds timeout{60'000};
  // send and receive will be used: every pair of ranks connects while joining. They are InternalErrors otherwise.
  bool point_to_point = false;
  int max_ctas = 0;  // NCCL: upper bound of thread blocks (SMs) a collective may take; 0 = NCCL's choice
  std::string host_interface = "127.0.0.1";  // Gloo: address to listen on; loopback unless the config asks
};

// Collective over the group: every rank calls it, groups in the same order on all ranks. CommError on failure or time-out.
// Ranks that share several groups also destroy them in one order: between processes NCCL waits for the peers there.
std::unique_ptr<Communicator> make_communicator(const GroupSpec& spec, Rendezvous& store);

// "NCCL 2.28.9" or "Gloo", for logs and plan.json.
std::string backend_name(DeviceKind kind);

}  // namespace plait::comm
