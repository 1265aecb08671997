#include "topology/nominal.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/error.h"

namespace plait::topology {
namespace {

// From NVIDIA's data sheets; a rate given with sparsity is halved.
constexpr GpuModel models[] = {
    // Tesla V100 and V100S data sheets: SXM2 32 GB. DGX-1: four NICs of 100 Gbit/s.
    {.name = "V100",
     .capability = "sm70",
     .memory_gb_per_s = 900,
     .memory_gib = 31.7,
     .nvlink_lanes = 6,
     .pcie_gt_per_s = 8,
     .nics_of_host = 4,
     .nic_gb_per_s = 12.5,
     .has_bf16 = false,
     .variants = {{{{"V100S", ""}, 130.0, 16.4},
                   {{"V100", "PCIE"}, 112.0, 14.0},
                   {{"V100", "SXM3"}, 125.0, 15.7},
                   {{"V100", "SXM2"}, 125.0, 15.7}}}},
    // A100 data sheet: SXM4 80 GB; the rates of PCIe and of 40 GB are equal. DGX A100: eight NICs of 200 Gbit/s.
    {.name = "A100",
     .capability = "sm80",
     .memory_gb_per_s = 2039,
     .memory_gib = 79.1,
     .nvlink_lanes = 12,
     .pcie_gt_per_s = 16,
     .nics_of_host = 8,
     .nic_gb_per_s = 25,
     .variants = {{{{"A100", ""}, 312.0, 19.5}}}},
    // H100 architecture whitepaper v1.04, table 2, and H100 data sheet for NVL (1,671 with sparsity): SXM5 80 GB.
    // DGX H100, like those of H200 and B200: eight NICs of 400 Gbit/s.
    {.name = "H100",
     .capability = "sm90",
     .memory_gb_per_s = 3352,
     .memory_gib = 79.1,
     .nvlink_lanes = 18,
     .pcie_gt_per_s = 32,
     .nics_of_host = 8,
     .nic_gb_per_s = 50,
     .half_share = {.usual = 0.79},
     .memory_share = 0.83,
     .is_measured = true,
     .variants = {{{{"H100", "PCIE"}, 756.4, 51.2},
                   {{"H100", "NVL"}, 835.5, 60.0},
                   {{"H100", "HBM3"}, 989.4, 66.9},
                   {{"H100", "SXM5"}, 989.4, 66.9}}}},
    // H200 data sheet: SXM 1,979 and NVL 1,671 with sparsity; SXM 141 GB.
    {.name = "H200",
     .capability = "sm90",
     .memory_gb_per_s = 4800,
     .memory_gib = 139.8,
     .nvlink_lanes = 18,
     .pcie_gt_per_s = 32,
     .nics_of_host = 8,
     .nic_gb_per_s = 50,
     .is_measured = true,
     .variants = {{{{"H200", "NVL"}, 835.5, 60.0}, {{"H200", ""}, 989.4, 66.9}}}},
    // HGX B200 data sheet, eight GPUs of 180 GB: 36 PFLOP/s with sparsity, 600 TFLOP/s in fp32.
    {.name = "B200",
     .capability = "sm100",
     .memory_gb_per_s = 7700,
     .memory_gib = 178.3,
     .nvlink_lanes = 18,
     .pcie_gt_per_s = 32,
     .nics_of_host = 8,
     .nic_gb_per_s = 50,
     .variants = {{{{"B200", ""}, 2250.0, 75.0}}}},
    // L40S data sheet. OVX: a NIC of 200 Gbit/s for every two.
    {.name = "L40S",
     .capability = "sm89",
     .memory_gb_per_s = 864,
     .memory_gib = 44.4,
     .nvlink_lanes = 0,
     .pcie_gt_per_s = 16,
     .nics_of_host = 4,
     .nic_gb_per_s = 25,
     .variants = {{{{"L40S", ""}, 362.05, 91.6}}}},
    // Ada GPU architecture whitepaper, appendix A: bf16 accumulates in fp32. A workstation's network: 10 Gbit/s.
    // GeForce products that accumulate in fp32 run at half the chip's rate, so power hardly limits them: whole steps of llm.q
    // sustain 0.75 to 0.81 of it.
    {.name = "RTX 4090",
     .capability = "sm89",
     .memory_gb_per_s = 1008,
     .memory_gib = 23.5,
     .nvlink_lanes = 0,
     .pcie_gt_per_s = 16,
     .nics_of_host = 1,
     .nic_gb_per_s = 1.25,
     .half_share = {.slowest = 0.73, .usual = 0.9, .fastest = 1},
     .variants = {{{{"RTX", "4090"}, 165.2, 82.6}}}},
};

}  // namespace

const GpuVariant& GpuModel::standard() const {
  return *std::find_if(variants.rbegin(), variants.rend(), [](const GpuVariant& v) { return !v.words[0].empty(); });
}

std::span<const GpuModel> gpu_models() { return models; }

int cores_per_multiprocessor(std::string_view capability) {
  // CUDA C++ Programming Guide, compute capabilities: fp32 lanes.
  static constexpr std::pair<std::string_view, int> known[] = {
      {"sm60", 64},  {"sm61", 128}, {"sm62", 128}, {"sm70", 64},   {"sm72", 64},   {"sm75", 64},   {"sm80", 64},  {"sm86", 128},
      {"sm87", 128}, {"sm89", 128}, {"sm90", 128}, {"sm100", 128}, {"sm103", 128}, {"sm120", 128}, {"sm121", 128}};
  for (const auto& [name, cores] : known) {
    if (name == capability) return cores;
  }
  return 0;
}

namespace {

// NCCL src/graph/topo.h (SM60_NVLINK_BW and following; SM100 as there) and RCCL's topo.h (VEGA, MI200, GFX94X). NCCL counts
// sm70 and sm80 at 20.0 and sm90 at 20.6, although the three have lanes of the same 25 GB/s: all three at 20.6.
struct Capability {
  int from;
  double gb_per_s;
};
constexpr std::array capabilities = {Capability{60, 18}, Capability{70, 20.6}, Capability{86, 12}, Capability{87, 20.6},
                                     Capability{100, 40.1}};

struct Gfx {
  std::string_view name;
  double gb_per_s;
};
// RCCL's files write gfx90a as 910.
constexpr std::array gfx_models = {Gfx{"gfx906", 24}, Gfx{"gfx908", 24}, Gfx{"gfx90a", 36}, Gfx{"gfx910", 36},
                                   Gfx{"gfx940", 48}, Gfx{"gfx941", 48}, Gfx{"gfx942", 48}};

double latency_of(LinkKind kind) {
  switch (kind) {
    case LinkKind::nvlink:
    case LinkKind::xgmi:
    case LinkKind::c2c: return 0.6;
    case LinkKind::pcie: return 0.5;
    case LinkKind::pcie_peer: return 0;
    case LinkKind::smp: return 0.5;
    case LinkKind::network: return 2.5;
  }
  throw InternalError("unknown kind of link");
}

}  // namespace

std::optional<double> nominal_lane_gb_per_s(std::string_view model) {
  if (model.starts_with("gfx")) {
    for (const Gfx& gfx : gfx_models) {
      if (gfx.name == model) return gfx.gb_per_s;
    }
    return std::nullopt;
  }
  if (!model.starts_with("sm")) return std::nullopt;
  int capability = 0;
  const char* end = model.data() + model.size();
  const auto [rest, status] = std::from_chars(model.data() + 2, end, capability);
  if (status != std::errc() || rest != end) return std::nullopt;
  std::optional<double> found;
  for (const Capability& row : capabilities) {
    if (capability >= row.from) found = row.gb_per_s;
  }
  return found;
}

std::optional<double> nominal_pcie_gb_per_s(double gt_per_s, int width) {
  constexpr std::array generations = {2.5, 5.0, 8.0, 16.0, 32.0, 64.0};
  double lane = 0.1875;
  for (const double generation : generations) {
    if (gt_per_s == generation && width >= 1 && width <= 32) return lane * width;
    lane *= 2;
  }
  return std::nullopt;
}

Edge nominal_edge(int a, int b, LinkKind kind, double gb_per_s, int lanes) {
  Edge edge;
  edge.a = a;
  edge.b = b;
  edge.kind = kind;
  edge.lanes = lanes;
  edge.gb_per_s = gb_per_s;
  edge.latency_us = latency_of(kind);
  return edge;
}

}  // namespace plait::topology
