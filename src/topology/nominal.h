// Nominal figures, with their sources: the GPUs that plait knows by name, and the links that were not measured.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "topology/graph.h"

namespace plait::topology {

// The GPUs that plait knows by name, with their data sheet figures in one table. Peak rates (device_profile.h), nominal
// profiles (device_profile.h) and assumed machines (assumed_topology.h) are read from it.
struct GpuVariant {
  std::array<std::string_view, 2> words;  // the name of such a device contains all of them; an empty word always matches
  double half_tflops = 0;                 // dense, 16-bit tensor cores with fp32 accumulation: bf16, fp16 on Volta
  double single_tflops = 0;               // fp32 outside tensor cores
};

// The share of the data sheet's 16-bit rate that a training step sustains: at least, usually and at most. The default was
// measured on H200 (docs/planner.md), whose power limit decides: 0.62 in narrow blocks that nothing interrupts, 0.73 in steps,
// and 0.81 for single products, which end before the limit takes effect.
struct SustainedShare {
  double slowest = 0.62, usual = 0.73, fastest = 0.81;
};

struct GpuModel {
  std::string_view name;        // "H200"
  std::string_view capability;  // "sm90"
  double memory_gb_per_s = 0, memory_gib = 0;
  int nvlink_lanes = 0;      // to a switch, in HGX and DGX machines; 0: PCIe only
  double pcie_gt_per_s = 0;  // of each of 16 lanes: 8, 16 and 32 are Gen3, 4 and 5
  // The NICs of the hosts of eight that it is sold in, and the rate of each in one direction.
  int nics_of_host = 8;
  double nic_gb_per_s = 0;
  bool has_bf16 = true;
  SustainedShare half_share = {};
  // The share of the data sheet's memory rate that memory-bound kernels reach. The default is H200's: 3.3 to 4.2 of 4.8 TB/s.
  double memory_share = 0.78;
  bool is_measured = false;  // by steps of plait, with which its nominal figures are compared (docs/planner.md)
  // The first variant whose words match a name counts. The last is the one that all other figures describe. Unused ones have no
  // words.
  std::array<GpuVariant, 4> variants;

  const GpuVariant& standard() const;
  // The FP8 rate as a multiple of the 16-bit rate, from the data sheet; 0: no FP8 products, before Ada and Hopper.
  double fp8_factor() const { return capability >= "sm89" || capability.size() > 4 ? 2 : 0; }
};

std::span<const GpuModel> gpu_models();

// CUDA cores of a multiprocessor, by compute capability ("sm90"); 0 for an unknown one.
int cores_per_multiprocessor(std::string_view capability);

// Nominal bandwidth and latency of links that were not measured: one table, with its sources.

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
