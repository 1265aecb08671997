#include "site/collective_way.h"

#include <algorithm>

namespace plait::site {
namespace {

bool is_open(const Config& config) {
  const CommConfig& comm = config.comm;
  const bool open = std::ranges::any_of(axis_table, [&](const AxisRow& row) {
    return row.way != WayKey::none && config.parallel.size[row.axis] != 1 && !comm.way_along(row.axis);
  });
  return open && !comm.p2p && comm.p2p_pairs.empty() && comm.peer_access == PeerAccessUse::automatic;
}

}  // namespace

std::optional<CollectiveWay> collective_way(const Config& config, topology::Fabric& fabric, DeviceKind kind) {
  if (!is_open(config) || kind != DeviceKind::cuda || fabric.hosts() != 1) return std::nullopt;
  for (int to = 1; to < fabric.gpus(); ++to) {
    for (int from = 0; from < to; ++from) {
      if (!fabric.way(from, to).link.starts_with("NV")) return std::nullopt;
    }
  }
  return CollectiveWay::links;
}

}  // namespace plait::site
