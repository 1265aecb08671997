// A group of ranks that communicate, as one of them sees it.
#pragma once

#include <chrono>
#include <string>

#include "core/device.h"

namespace plait::comm {

struct GroupSpec {
  std::string name;  // unique among the job's groups; prefixes the rendezvous keys
  int rank = 0;      // of this process or thread within the group
  int size = 1;
  Device device;  // where its data lives: cuda → NCCL, host → Gloo
  std::chrono::milliseconds timeout{60'000};
  // Needed for send and receive, which are InternalErrors otherwise. Every pair of ranks then connects while joining.
  bool point_to_point = false;
  int max_ctas = 0;  // NCCL: upper bound of thread blocks (SMs) a collective may take; 0 = NCCL's choice
  std::string host_interface = "127.0.0.1";  // Gloo: address to listen on; loopback unless configured
};

}  // namespace plait::comm
