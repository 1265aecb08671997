#include "plan/placement/host_refinement.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "core/index.h"
#include "plan/placement/exact.h"
#include "topology/part.h"

namespace plait::plan {
namespace {

constexpr std::int64_t most_nodes = 100'000;

// The coordinates along each axis that the ranks of one host have.
struct Block {
  std::vector<int> pipeline, data, tensor;
};

bool ways_differ(topology::Fabric& fabric, int host) {
  const int first = fabric.first_gpu(host), end = fabric.first_gpu(host + 1);
  if (end - first > most_exact_gpus || end - first < 3) return false;
  const topology::Way& one = fabric.way(first, first + 1);
  for (int from = first; from < end; ++from) {
    for (int to = first; to < end; ++to) {
      if (from == to) continue;
      const topology::Way& way = fabric.way(from, to);
      if (way.gb_per_s != one.gb_per_s || way.latency_us != one.latency_us) return true;
    }
  }
  return false;
}

// What the ranks of the block send each other. A group that goes on in other hosts counts as if it did not.
Traffic part_of(const Traffic& traffic, const Block& block) {
  Traffic part;
  part.layout = {static_cast<int>(block.pipeline.size()), static_cast<int>(block.data.size()),
                 static_cast<int>(block.tensor.size())};
  std::map<int, int> number;
  for (int p : block.pipeline) {
    number.insert({p, static_cast<int>(number.size())});
    if (!traffic.tensor.empty()) part.tensor.push_back(traffic.tensor[at(p)]);
    if (!traffic.data.empty()) part.data.push_back(traffic.data[at(p)]);
  }
  if (number.contains(traffic.ends.first) && number.contains(traffic.ends.last)) {
    part.tied = traffic.tied;
    part.ends = {number.at(traffic.ends.first), number.at(traffic.ends.last)};
  }
  for (ChainTraffic link : traffic.chain) {
    if (!number.contains(link.from) || !number.contains(link.to)) continue;
    link.from = number.at(link.from);
    link.to = number.at(link.to);
    part.chain.push_back(link);
  }
  return part;
}

Block block_of(const parallel::Layout& layout, const std::vector<int>& ranks) {
  Block block;
  for (int rank : ranks) {
    const parallel::Coordinates c = layout.coordinates(rank);
    block.pipeline.push_back(c.pipeline);
    block.data.push_back(c.data);
    block.tensor.push_back(c.tensor);
  }
  for (std::vector<int>* axis : {&block.pipeline, &block.data, &block.tensor}) {
    std::sort(axis->begin(), axis->end());
    axis->erase(std::unique(axis->begin(), axis->end()), axis->end());
  }
  return block;
}

}  // namespace

std::vector<int> refine_within_hosts(CostModel& model, const std::vector<int>& gpu_of_rank) {
  topology::Fabric& fabric = model.fabric();
  const parallel::Layout layout = model.traffic().layout;
  std::vector<int> refined = gpu_of_rank;
  if (fabric.hosts() == 1 && fabric.gpus() <= most_exact_gpus) return refined;  // is the exact search's own question
  std::vector<std::vector<int>> ranks_of(at(fabric.hosts()));
  for (int rank = 0; rank < layout.ranks(); ++rank) ranks_of[at(fabric.host_of(gpu_of_rank[at(rank)]))].push_back(rank);
  std::vector<bool> measured(at(fabric.hosts()), false);
  for (const topology::PairMeasurement& pair : fabric.graph().pairs) measured[at(fabric.host_of_node(pair.from))] = true;
  std::map<int, bool> differ;  // by shape, or -1 - host where its pairs were measured
  std::map<std::tuple<int, std::vector<int>, std::size_t, std::size_t>, std::vector<int>> known;
  for (int host = 0; host < fabric.hosts(); ++host) {
    const std::vector<int>& ranks = ranks_of[at(host)];
    const int kind = measured[at(host)] ? -1 - host : fabric.shape_of(host);
    if (ranks.size() < 2) continue;
    if (!differ.contains(kind)) differ[kind] = ways_differ(fabric, host);
    if (!differ[kind]) continue;
    const Block block = block_of(layout, ranks);
    if (block.pipeline.size() * block.data.size() * block.tensor.size() != ranks.size()) continue;
    std::vector<int>& places = known[{kind, block.pipeline, block.data.size(), block.tensor.size()}];
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
    std::size_t next = 0;
    for (int p : block.pipeline) {
      for (int d : block.data) {
        for (int t : block.tensor) refined[at(layout.rank({p, d, t}))] = fabric.first_gpu(host) + places[next++];
      }
    }
  }
  return refined;
}

}  // namespace plait::plan
