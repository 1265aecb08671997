#include "bench/nominal_rate.h"

#include <spdlog/fmt/fmt.h>

#include <string>

#include "topology/discover.h"
#include "topology/routes.h"

namespace plait::bench {
namespace {

std::optional<int> node_of(const topology::Routes& routes, const std::string& bus_id) {
  for (const int gpu : routes.gpus()) {
    if (routes.graph().nodes[static_cast<std::size_t>(gpu)].bus_id == bus_id) return gpu;
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> nominal_rate(const comm::p2p::PairFacts& facts) {
  const bool gpus = facts.sender.kind == DeviceKind::cuda && facts.receiver.kind == DeviceKind::cuda;
  if (!gpus || !facts.same_host() || facts.sender.bus_id == facts.receiver.bus_id) return std::nullopt;
  static const topology::Routes routes(
      topology::discover_live().graph);  // the host does not change, and discovery takes a while
  const auto from = node_of(routes, facts.sender.bus_id), to = node_of(routes, facts.receiver.bus_id);
  if (!from || !to) return std::nullopt;
  const double rate = routes.summary_of(*from, routes.path(*from, *to)).gb_per_s;
  return rate > 0 ? std::optional(rate) : std::nullopt;
}

std::string slow_text(const std::string& pair, double gb_per_s, double nominal) {
  return fmt::format(
      "warning: {}: {:.1f} GB/s are {:.0f} % of the {:.1f} that its link should carry: a link that runs with fewer "
      "lanes or at a lower generation, other work on it, or an IOMMU in the way (`plait topo` looks for them)",
      pair, gb_per_s, 100 * gb_per_s / nominal, nominal);
}

}  // namespace plait::bench
