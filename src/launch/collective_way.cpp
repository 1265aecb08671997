#include "launch/collective_way.h"

namespace plait::launch {
namespace {

bool is_open(const Config& config) {
  const CommConfig& comm = config.comm;
  const bool exchanges = config.parallel.tensor != 1 && !comm.exchanges,
             reductions = config.parallel.data != 1 && !comm.reductions;
  return (exchanges || reductions) && !comm.p2p && comm.p2p_pairs.empty() && comm.peer_access == PeerAccessUse::automatic;
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

}  // namespace plait::launch
