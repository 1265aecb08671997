#include "topology/nominal.h"

#include <array>
#include <charconv>

#include "core/error.h"

namespace plait::topology {
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
