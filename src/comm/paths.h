// The ways that bytes take between the ranks of a group: the choices of a communicator or a link, in one form.
#pragma once

#include <string>
#include <vector>

#include "core/names.h"

namespace plait::comm {

// The medium between the memory of two ranks, the closest first.
enum class Carrier {
  memory,  // nothing: CPUs of one process
  p2p,     // NVLink or PCIe: a GPU, its copy engine or a third GPU reads and writes the other's memory
  shm,     // memory of the host
  gdrdma,  // NICs that read and write the memory of GPUs (GPUDirect RDMA)
  net,     // a network, by way of host memory
};

struct PairPath {
  int from = 0, to = 0;  // ranks of the group
  Carrier carrier = Carrier::net;
  std::string via;   // in the backend's words: "P2P/CUMEM/read", "NET/IB/0/GDRDMA", "TCP", "vmm"
  int channels = 0;  // connections that go this way; 0: not counted
  friend bool operator==(const PairPath&, const PairPath&) = default;
};

// The paths that one rank knows. A pair may have more than one, on different channels.
struct Paths {
  std::string by;                            // "NCCL 2.28.9", "Gloo 0.5.0", "links"; "" if nothing moves
  std::vector<PairPath> pairs;               // from this rank
  std::vector<std::string> algorithms = {};  // of collectives that have connections: "ring", "tree", "nvls"; none: not told
  int channels = 0;                          // channels that a collective is spread over; 0: it is not, or unknown
  std::string unknown = {};                  // why the pairs are not known; "": they are
  friend bool operator==(const Paths&, const Paths&) = default;
};

}  // namespace plait::comm

namespace plait {

template <>
inline constexpr auto names<comm::Carrier> = std::to_array<Name<comm::Carrier>>({{comm::Carrier::memory, "memory"},
                                                                                 {comm::Carrier::p2p, "p2p"},
                                                                                 {comm::Carrier::shm, "shm"},
                                                                                 {comm::Carrier::gdrdma, "gdrdma"},
                                                                                 {comm::Carrier::net, "net"}});

}  // namespace plait
