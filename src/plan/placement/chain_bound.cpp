#include "plan/placement/chain_bound.h"

#include <algorithm>
#include <bit>
#include <map>

#include "core/index.h"
#include "core/units.h"
#include "plan/placement/cost.h"

namespace plait::plan {
namespace {}  // namespace

ChainBound::ChainBound(topology::Fabric& fabric, const Traffic& traffic)
    : gpus_(fabric.gpus()), neighbours_(at(traffic.layout.size(stage_axis))), fill_(at(gpus_)), steady_(at(gpus_)) {
  std::map<std::pair<int, int>, std::vector<ChainTraffic>> hops;
  for (const ChainTraffic& link : traffic.chain) {
    if (link.bytes <= 0 && link.messages <= 0) continue;
    hops[{std::min(link.from, link.to), std::max(link.from, link.to)}].push_back(link);
  }
  for (const auto& [ends, links] : hops) {
    neighbours_[at(ends.first)].push_back(ends.second);
    neighbours_[at(ends.second)].push_back(ends.first);
  }
  sends_ = !hops.empty();
  if (!sends_) return;
  connected_ = true;
  for (int p = 0; p + 1 < traffic.layout.size(stage_axis); ++p) connected_ = connected_ && hops.contains({p, p + 1});
  fill_between_.assign(at(gpus_ * gpus_), 0);
  steady_between_ = fill_between_;
  for (int u = 0; u < gpus_; ++u) {
    for (int v = 0; v < gpus_; ++v) {
      if (u == v) continue;
      double fill = infinite, steady = infinite;
      for (const auto& [ends, links] : hops) {
        for (const int low : {u, v}) {
          double message = 0, all = 0;
          for (const ChainTraffic& link : links) {
            const bool from_low = link.from == ends.first;
            const topology::Way& way = fabric.message_way(from_low == (low == u) ? u : v, from_low == (low == u) ? v : u);
            message += way_seconds(way, link.bytes / std::max(1.0, link.messages)) + way.latency_us * 1e-6;
            all = std::max(all, way_seconds(way, link.bytes));
          }
          fill = std::min(fill, message);
          steady = std::min(steady, all);
        }
      }
      fill_between_[at(u * gpus_ + v)] = fill;
      steady_between_[at(u * gpus_ + v)] = steady;
      fill_[at(u)].push_back({v, fill});
      steady_[at(u)].push_back({v, steady});
    }
    for (std::vector<Partner>* partners : {&fill_[at(u)], &steady_[at(u)]})
      std::stable_sort(partners->begin(), partners->end(),
                       [](const Partner& x, const Partner& y) { return x.seconds < y.seconds; });
  }
}

double ChainBound::nearest(const std::vector<Partner>& partners, std::uint32_t among, int how_many, double* second) {
  double first = infinite;
  int found = 0;
  for (const Partner& partner : partners) {
    if (!(among >> partner.gpu & 1U)) continue;
    if (++found == 1)
      first = partner.seconds;
    else if (second)
      *second = partner.seconds;
    if (found == how_many) break;
  }
  return first;
}

// Prim's algorithm (1957).
double ChainBound::forest(const std::vector<double>& seconds, std::uint32_t nodes, int trees, bool longest) {
  edges_.clear();
  distance_.assign(at(gpus_), infinite);
  std::uint32_t outside = nodes & (nodes - 1);
  for (int added = std::countr_zero(nodes); outside != 0;) {
    int nearest_node = -1;
    for (std::uint32_t rest = outside; rest != 0; rest &= rest - 1) {
      const int node = std::countr_zero(rest);
      double& distance = distance_[at(node)];
      distance = std::min(distance, seconds[at(added * gpus_ + node)]);
      if (nearest_node < 0 || distance < distance_[at(nearest_node)]) nearest_node = node;
    }
    edges_.push_back(distance_[at(nearest_node)]);
    outside &= ~(1U << nearest_node);
    added = nearest_node;
  }
  std::sort(edges_.begin(), edges_.end());
  if (edges_.size() < at(trees)) return 0;
  edges_.resize(edges_.size() - at(trees - 1));
  if (longest) return edges_.back();
  double sum = 0;
  for (double edge : edges_) sum += edge;
  return sum;
}

void ChainBound::look_at(std::uint32_t free, std::uint32_t ends, int open_copies) {
  free_ = free;
  forest_fill_ = forest_steady_ = 0;
  if (connected_ && open_copies > 0) {
    forest_fill_ = forest(fill_between_, free | ends, open_copies, false);
    forest_steady_ = forest(steady_between_, free | ends, open_copies, true);
  }
  one_sums_.clear();
  two_sums_.clear();
  second_steady_.clear();
  for (int gpu = 0; gpu < gpus_; ++gpu) {
    if (!(free >> gpu & 1U)) continue;
    double second = infinite, ignored = infinite;
    const double first = nearest(fill_[at(gpu)], free | ends, 2, &second);
    one_sums_.push_back(first);
    two_sums_.push_back(first + second);
    nearest(steady_[at(gpu)], free | ends, 2, &ignored);
    second_steady_.push_back(ignored);
  }
  for (std::vector<double>* values : {&one_sums_, &two_sums_, &second_steady_}) std::sort(values->begin(), values->end());
  for (std::vector<double>* values : {&one_sums_, &two_sums_}) {
    values->insert(values->begin(), 0);
    for (std::size_t i = 1; i < values->size(); ++i) (*values)[i] += (*values)[i - 1];
  }
}

bool ChainBound::open(int pipeline, int placed) const {
  const std::vector<int>& others = neighbours_[at(pipeline)];
  return std::any_of(others.begin(), others.end(), [&](int other) { return other >= placed; });
}

double ChainBound::fill(int placed, const std::vector<int>& gpu_of) const {
  int with_one = 0, with_two = 0;
  double ends = 0;
  for (int p = 0; p < static_cast<int>(neighbours_.size()); ++p) {
    if (p >= placed) {
      with_one += neighbours(p) == 1;
      with_two += neighbours(p) > 1;
    } else if (open(p, placed)) {
      ends += nearest(fill_[at(gpu_of[at(p)])], free_, 1, nullptr);
    }
  }
  if (at(with_one) >= one_sums_.size() || at(with_two) >= two_sums_.size()) return infinite;
  return (one_sums_[at(with_one)] + two_sums_[at(with_two)] + ends) / 2;
}

double ChainBound::steady(int ranks, int at_an_end) const {
  const int busy = ranks - at_an_end;
  if (busy <= 0) return forest_steady_;
  return at(busy) > second_steady_.size() ? infinite : std::max(forest_steady_, second_steady_[at(busy - 1)]);
}

}  // namespace plait::plan
