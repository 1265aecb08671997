#include "plan/placement/host_refinement.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>

#include "core/index.h"
#include "plan/placement/exact.h"
#include "topology/graph.h"

namespace plait::plan {
namespace {

constexpr std::int64_t most_nodes = 100'000;

// The coordinates of one host's ranks along each axis.
class Block {
 public:
  Block(const parallel::Layout& layout, const std::vector<int>& ranks) {
    for (const Axis axis : layout.axes()) {
      std::set<int> places;
      for (const int rank : ranks) places.insert(layout.coordinate(rank, axis));
      places_[axis].assign(places.begin(), places.end());
      sizes_.push_back({axis, static_cast<int>(places.size())});
    }
  }
  parallel::Layout layout() const { return parallel::Layout(sizes_); }
  const std::vector<int>& places(Axis axis) const { return places_.at(axis); }
  // The rank of the whole layout that is number `rank` of the block.
  int rank_of(const parallel::Layout& whole, int rank) const {
    const parallel::Layout mine = layout();
    parallel::Coordinates c;
    for (const Axis axis : whole.axes()) c[axis] = places(axis)[at(mine.coordinate(rank, axis))];
    return whole.rank(c);
  }

 private:
  std::map<Axis, std::vector<int>> places_;
  std::vector<parallel::MeshAxis> sizes_;
};

bool ways_differ(topology::Fabric& fabric, int host) {
  const int first = fabric.first_gpu(host), end = fabric.first_gpu(host + 1);
  if (end - first > most_exact_gpus || end - first < 3) return false;
  const topology::Way &one = fabric.way(first, first + 1), &message_one = fabric.message_way(first, first + 1);
  for (int from = first; from < end; ++from) {
    for (int to = first; to < end; ++to) {
      if (from == to) continue;
      const topology::Way &way = fabric.way(from, to), &message = fabric.message_way(from, to);
      if (way.gb_per_s != one.gb_per_s || way.latency_us != one.latency_us) return true;
      if (message.gb_per_s != message_one.gb_per_s || message.latency_us != message_one.latency_us) return true;
    }
  }
  return false;
}

// The traffic between the ranks of the block. A group that continues on other hosts counts as if it did not.
Traffic part_of(const Traffic& traffic, const Block& block) {
  Traffic part;
  part.layout = block.layout();
  std::map<int, int> number;
  for (const int p : block.places(stage_axis)) number.insert({p, static_cast<int>(number.size())});
  const bool both_ends = number.contains(traffic.ends.first) && number.contains(traffic.ends.last);
  if (both_ends) part.ends = {number.at(traffic.ends.first), number.at(traffic.ends.last)};
  for (const GroupTraffic& of : traffic.rings) {
    if (of.group.model_ends && !both_ends) continue;
    std::vector<RingTraffic>& mine = part.of(of.group);
    for (const auto& [whole, here] : number) mine[at(here)] = of.by_pipeline[at(whole)];
  }
  for (ChainTraffic link : traffic.chain) {
    if (!number.contains(link.from) || !number.contains(link.to)) continue;
    link.from = number.at(link.from);
    link.to = number.at(link.to);
    part.chain.push_back(link);
  }
  return part;
}

}  // namespace

std::vector<int> refine_within_hosts(CostModel& model, const std::vector<int>& gpu_of_rank) {
  topology::Fabric& fabric = model.fabric();
  const parallel::Layout layout = model.traffic().layout;
  std::vector<int> refined = gpu_of_rank;
  if (fabric.hosts() == 1 && fabric.gpus() <= most_exact_gpus) return refined;  // the exact search covers this case
  std::vector<std::vector<int>> ranks_of(at(fabric.hosts()));
  for (int rank = 0; rank < layout.ranks(); ++rank) ranks_of[at(fabric.host_of(gpu_of_rank[at(rank)]))].push_back(rank);
  std::vector<bool> measured(at(fabric.hosts()), false);
  for (const topology::PairMeasurement& pair : fabric.graph().pairs) measured[at(fabric.host_of_node(pair.from))] = true;
  std::map<int, bool> differ;  // by shape, or by -1 - host if its pairs were measured
  std::map<std::tuple<int, std::vector<int>, std::string>, std::vector<int>> known;  // by kind of host, stages, and sizes
  for (int host = 0; host < fabric.hosts(); ++host) {
    const std::vector<int>& ranks = ranks_of[at(host)];
    const int kind = measured[at(host)] ? -1 - host : fabric.shape_of(host);
    if (ranks.size() < 2) continue;
    if (!differ.contains(kind)) differ[kind] = ways_differ(fabric, host);
    if (!differ[kind]) continue;
    const Block block(layout, ranks);
    const parallel::Layout inner = block.layout();
    if (at(inner.ranks()) != ranks.size()) continue;
    std::vector<int>& places = known[{kind, block.places(stage_axis), inner.to_string()}];
    if (places.empty()) {
      const int number = fabric.gpu(fabric.first_gpu(host)).host;  // as the graph counts them
      topology::Fabric inside(
          topology::part_of(fabric.graph(), [&](const topology::Node& node) { return node.host == number; }));
      Rings rings(inside);
      CostModel part(rings, part_of(model.traffic(), block));
      Symmetry symmetry(inside);
      std::vector<int> start(ranks.size());
      std::iota(start.begin(), start.end(), 0);
      places = exact_placement(part, symmetry, start, most_nodes).gpu_of_rank;
    }
    for (int rank = 0; rank < inner.ranks(); ++rank)
      refined[at(block.rank_of(layout, rank))] = fabric.first_gpu(host) + places[at(rank)];
  }
  return refined;
}

}  // namespace plait::plan
