// Facts about one machine that are not in its graph: its processors, which GPUs reach each other's memory, and what prevents
// it. For a graph from a file it holds what the file says: nothing unless `plait topo --json` wrote it. Planning reads none of
// it; the effects of peer access on ways are in the graph.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/graph.h"

namespace plait::topology {

struct NumaCpus {
  int numa = 0;
  std::string cpus;               // the kernel's list of logical processors: "0-31,64-95"
  std::int64_t memory_bytes = 0;  // 0: not known
  friend bool operator==(const NumaCpus&, const NumaCpus&) = default;
};

// A GPU's name and size, as far as the driver tells.
struct GpuFacts {
  int node = 0;                   // of the graph
  std::string name;               // "NVIDIA H200"
  std::int64_t memory_bytes = 0;  // 0: not known
  int multiprocessors = 0;        // SMs; 0: not known
  friend bool operator==(const GpuFacts&, const GpuFacts&) = default;
};

enum class PeerAccess { yes, no, unknown };

// The driver's answer on whether `from` reads and writes the memory of `to`; asking allocates nothing.
struct PeerStatus {
  int from = 0, to = 0;  // nodes of the graph
  PeerAccess access = PeerAccess::unknown;
  std::string why;  // reason for no access
  // CUDA's attributes for pairs that this process sees: -1 otherwise.
  int native_atomics = -1;    // 0 or 1
  int performance_rank = -1;  // 0 the best
  friend bool operator==(const PeerStatus&, const PeerStatus&) = default;
};

// A setting of the driver, kernel or container, or a state of the hardware, that messages between GPUs depend on.
struct Finding {
  std::string about;   // "IOMMU"
  std::string value;   // "on (dmar0), GPUs translated"
  std::string effect;  // its cost and the remedy; "" if harmless
  friend bool operator==(const Finding&, const Finding&) = default;
};

struct Machine {
  std::string driver;  // "580.82.07", "" without
  std::vector<NumaCpus> cpus;
  std::vector<PeerStatus> peers;
  std::vector<Finding> findings;
  std::vector<GpuFacts> gpus;  // only known ones, in the graph's order
  friend bool operator==(const Machine&, const Machine&) = default;
};

// Replaces the graph's pairs of GPUs of one host without peer access.
void set_access(Graph& graph, const std::vector<PeerStatus>& peers);

// How many processors a list like "0-31,64" has; 0 if the text is not such a list.
int count_cpus(std::string_view cpus);

}  // namespace plait::topology

namespace plait {
template <>
inline constexpr auto names<topology::PeerAccess> = std::to_array<Name<topology::PeerAccess>>(
    {{topology::PeerAccess::yes, "yes"}, {topology::PeerAccess::no, "no"}, {topology::PeerAccess::unknown, "unknown"}});
}  // namespace plait
