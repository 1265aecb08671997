// Nominal bandwidth and latency of links that were not measured: one table, with its sources.
#pragma once

#include <optional>
#include <string_view>

#include "topology/graph.h"

namespace plait::topology {

// GB/s of one lane in one direction. `model` is "sm80" or "gfx906"; nullopt if the table does not have it. Compute capabilities
// between two of the table count as the lower one, all from 100 on as 100.
std::optional<double> nominal_lane_gb_per_s(std::string_view model);

// A lane of a GPU of unknown model, as in the text of `nvidia-smi topo -m`: the figure of V100 to H200 (sm70 to sm90).
inline constexpr double unknown_lane_gb_per_s = 20.6;

// GB/s in one direction between two GPUs without other traffic. The PCIe figure is NCCL's (Gen3 x16 in practice); that between
// sockets, below 10 for most CPUs, is what two GPUs get.
inline constexpr double pcie_gb_per_s = 12;
// The rate of a PCIe link of `width` lanes at `gt_per_s` (as sysfs gives it: 32, 16), after packet overhead of about a quarter:
// NCCL's figure (src/graph/topo.cc, kvDictPciGen: 12 GB/s for Gen3 x16, 48 for Gen5 x16). nullopt for a speed of no generation.
std::optional<double> nominal_pcie_gb_per_s(double gt_per_s, int width);
inline constexpr double smp_gb_per_s = 8;
inline constexpr double pcie_peer_gb_per_s = 5000;  // NCCL's figure for links inside one chip
inline constexpr double network_gb_per_s = 1.25;    // 10 Gbit/s: NCCL's for a NIC of unknown speed

// An edge with the nominal latency of its kind and the given bandwidth. Latencies are NCCL's of one hop with the LL protocol
// (src/graph/tuning.cc: 0.6 us over NVLink, 1.0 over PCIe, 5.0 over the network), spread over the edges of such a hop.
Edge nominal_edge(int a, int b, LinkKind kind, double gb_per_s, int lanes = 0);

}  // namespace plait::topology
