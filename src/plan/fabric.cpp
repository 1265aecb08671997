#include "plan/fabric.h"

#include "core/error.h"

namespace plait::plan {

namespace topology = comm::topology;

namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

Fabric::Fabric(topology::Graph graph) : routes_(std::move(graph)) {
  channels_.reserve(2 * routes_.graph().edges.size());
  for (const topology::Edge& edge : routes_.graph().edges) channels_.insert(channels_.end(), 2, Channel{edge.gb_per_s});
}

const topology::Node& Fabric::gpu(int number) const { return routes_.graph().nodes[at(routes_.gpus().at(at(number)))]; }

std::string Fabric::channel_name(int channel) const {
  const topology::Edge& edge = routes_.graph().edges.at(at(channel / 2));
  const bool reversed = channel % 2 == 1;
  const topology::Node& from = routes_.graph().nodes[at(reversed ? edge.b : edge.a)];
  const topology::Node& to = routes_.graph().nodes[at(reversed ? edge.a : edge.b)];
  return from.name + " to " + to.name + ", " + std::string(name_of(edge.kind));
}

const Way& Fabric::way(int from, int to) {
  require(from >= 0 && from < gpus() && to >= 0 && to < gpus(), "Fabric::way: no such GPU");
  const std::uint64_t key = (static_cast<std::uint64_t>(from) << 32) | static_cast<std::uint64_t>(to);
  const auto found = ways_.find(key);
  if (found != ways_.end()) return found->second;
  Way way;
  if (from != to) {
    const int a = routes_.gpus()[at(from)], b = routes_.gpus()[at(to)];
    const topology::Path path = routes_.path(a, b);
    const topology::PairSummary summary = routes_.summary(a, b, path);
    for (const topology::Hop& hop : path.hops) way.channels.push_back(2 * hop.edge + (hop.reversed ? 1 : 0));
    way.gb_per_s = summary.gb_per_s;
    way.latency_us = summary.latency_us;
    way.link = summary.link;
    way.bandwidth_from = summary.bandwidth_from;
  }
  return ways_.emplace(key, std::move(way)).first->second;
}

}  // namespace plait::plan
