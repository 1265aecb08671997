#include "plan/placement/lower_bound.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "core/index.h"
#include "core/units.h"

namespace plait::plan {
namespace {

constexpr int most_gpus_to_look_into = 64;
constexpr int most_shapes_to_pair = 8;

struct HostWays {
  int gpus = 0;
  bool whole = false;                         // too large to look into: counts as one component at any width
  std::vector<std::vector<double>> gb_per_s;  // the better direction of each pair
};

// The sets of GPUs that ways of a given width join.
class Widths {
 public:
  explicit Widths(topology::Fabric& fabric) {
    const topology::Graph& graph = fabric.graph();
    for (const topology::Edge& edge : graph.edges) widest_edge_ = std::max(widest_edge_, edge.gb_per_s);
    std::vector<int> edges_out(at(fabric.hosts()), 0);
    for (const topology::Edge& edge : graph.edges) {
      const int a = fabric.host_of_node(edge.a), b = fabric.host_of_node(edge.b);
      if (a == b) continue;
      for (const int host : {a, b}) {
        if (host >= 0) most_edges_out_ = std::max(most_edges_out_, ++edges_out[at(host)]);
      }
    }
    std::vector<bool> measured(at(fabric.hosts()), false);
    for (const topology::PairMeasurement& pair : graph.pairs) {
      const int from = fabric.host_of_node(pair.from), to = fabric.host_of_node(pair.to);
      widest_edge_ = std::max(widest_edge_, pair.gb_per_s);
      if (from == to)
        measured[at(from)] = true;
      else
        measured_between_ = true, between_ = std::max(between_, pair.gb_per_s);
    }
    std::map<int, std::size_t> of_shape;
    for (int host = 0; host < fabric.hosts(); ++host) {
      const auto known = of_shape.find(fabric.shape_of(host));
      if (!measured[at(host)] && known != of_shape.end()) {
        ++count_[known->second];
        continue;
      }
      if (!measured[at(host)]) of_shape[fabric.shape_of(host)] = hosts_.size();
      hosts_.push_back(look_into(fabric, host));
      count_.push_back(1);
    }
    if (fabric.hosts() > 1) look_between(fabric);
    std::set<double> widths = {between_};
    for (const HostWays& host : hosts_) {
      if (host.whole) widths.insert(widest_edge_);
      for (const std::vector<double>& row : host.gb_per_s) widths.insert(row.begin(), row.end());
    }
    for (double width : widths) {
      if (width > 0 && width >= between_) widths_.push_back(width);
    }
  }

  // Ascending, from the width of the widest way between hosts on.
  const std::vector<double>& widths() const { return widths_; }
  double widest() const { return widths_.empty() ? 0 : widths_.back(); }
  bool joins_hosts(double width) const { return width <= between_; }
  double least_latency_us() const { return least_latency_us_ == infinite ? 0 : least_latency_us_; }

  // The number of disjoint blocks of `size` GPUs that each lie within one component of pairs of at least `width`.
  int blocks(int size, double width) const {
    if (joins_hosts(width)) return everything() / size;
    int blocks = 0;
    for (std::size_t h = 0; h < hosts_.size(); ++h) {
      for (int component : components(hosts_[h], width)) blocks += count_[h] * (component / size);
    }
    return blocks;
  }

  // The number of GPUs in the largest component.
  int largest(double width) const {
    if (joins_hosts(width)) return everything();
    int largest = 1;
    for (const HostWays& host : hosts_) {
      for (int component : components(host, width)) largest = std::max(largest, component);
    }
    return largest;
  }

  // The most bandwidth of a group of `size` on several hosts that has at most `members` members on one of them. Each ring
  // leaves a host by another edge; between two members within it all rings but one pass.
  double across_hosts(int size, int members) const {
    double most = between_;
    for (int rings = 2; rings <= std::min({size / 2, members, most_edges_out_}); ++rings)
      most = std::max(most, std::min(rings * between_, widest() * rings / (rings - 1)));
    return most;
  }

  int largest_host() const {
    int largest = 1;
    for (const HostWays& host : hosts_) largest = std::max(largest, host.gpus);
    return largest;
  }

  // The greatest width at which `groups` groups of `size` all fit within components; 0 if they cannot reach each other.
  double width_for(int size, int groups) const {
    for (auto width = widths_.rbegin(); width != widths_.rend(); ++width) {
      if (blocks(size, *width) >= groups) return *width;
    }
    return between_;
  }

 private:
  int everything() const {
    int sum = 0;
    for (std::size_t h = 0; h < hosts_.size(); ++h) sum += count_[h] * hosts_[h].gpus;
    return sum;
  }

  HostWays look_into(topology::Fabric& fabric, int host) {
    HostWays ways;
    const int first = fabric.first_gpu(host);
    ways.gpus = fabric.first_gpu(host + 1) - first;
    ways.whole = ways.gpus > most_gpus_to_look_into;
    if (ways.whole) {
      least_latency_us_ = 0;
      return ways;
    }
    ways.gb_per_s.assign(at(ways.gpus), std::vector<double>(at(ways.gpus), 0));
    for (int a = 0; a < ways.gpus; ++a) {
      for (int b = 0; b < ways.gpus; ++b) {
        if (a == b) continue;
        const topology::Way &way = fabric.way(first + a, first + b), &message = fabric.message_way(first + a, first + b);
        for (double* width : {&ways.gb_per_s[at(a)][at(b)], &ways.gb_per_s[at(b)][at(a)]})
          *width = std::max({*width, way.gb_per_s, message.gb_per_s});
        least_latency_us_ = std::min({least_latency_us_, way.latency_us, message.latency_us});
      }
    }
    return ways;
  }

  // Pairs of example hosts stand for all hosts of their shapes, if no pair of hosts was measured. Otherwise the widest edge out
  // of a host bounds every way between hosts.
  void look_between(topology::Fabric& fabric) {
    bool small = !measured_between_ && fabric.shapes() <= most_shapes_to_pair;
    for (const HostWays& host : hosts_) small = small && !host.whole;
    if (!small) {
      least_latency_us_ = 0;
      for (const topology::Edge& edge : fabric.graph().edges) {
        const int a = fabric.host_of_node(edge.a), b = fabric.host_of_node(edge.b);
        if (a != b) between_ = std::max(between_, edge.gb_per_s);
      }
      return;
    }
    std::map<int, std::vector<int>> examples;  // by shape, two hosts
    for (int host = 0; host < fabric.hosts(); ++host) {
      std::vector<int>& hosts = examples[fabric.shape_of(host)];
      if (hosts.size() < 2) hosts.push_back(host);
    }
    for (const auto& [shape, hosts] : examples) {
      for (const auto& [other_shape, others] : examples) {
        if (shape == other_shape && hosts.size() < 2) continue;
        const int one = hosts.front(), other = others.back();
        for (int a = fabric.first_gpu(one); a < fabric.first_gpu(one + 1); ++a) {
          for (int b = fabric.first_gpu(other); b < fabric.first_gpu(other + 1); ++b) {
            const topology::Way& way = fabric.way(a, b);
            between_ = std::max(between_, way.gb_per_s);
            if (way.gb_per_s > 0) least_latency_us_ = std::min(least_latency_us_, way.latency_us);
          }
        }
      }
    }
  }

  std::vector<int> components(const HostWays& host, double width) const {
    if (host.whole) return {host.gpus};
    std::vector<int> sizes;
    std::vector<bool> seen(at(host.gpus), false);
    for (int first = 0; first < host.gpus; ++first) {
      if (seen[at(first)]) continue;
      std::vector<int> members = {first};
      seen[at(first)] = true;
      for (std::size_t i = 0; i < members.size(); ++i) {
        for (int other = 0; other < host.gpus; ++other) {
          if (seen[at(other)] || host.gb_per_s[at(members[i])][at(other)] < width) continue;
          seen[at(other)] = true;
          members.push_back(other);
        }
      }
      sizes.push_back(static_cast<int>(members.size()));
    }
    return sizes;
  }

  std::vector<HostWays> hosts_;  // distinct ones
  std::vector<int> count_;       // how many of each
  std::vector<double> widths_;
  double between_ = 0;  // an upper bound on ways between hosts
  int most_edges_out_ = 0;
  bool measured_between_ = false;
  double widest_edge_ = 0;
  double least_latency_us_ = infinite;
};

// Bounds of one axis: at its best, and with at least one group over a way of limited width.
struct AxisBound {
  int size = 1;  // 1: sends nothing, so it can be anywhere
  double inside = 0;
  double within_hosts = 0;  // with every group or pipeline on one host
  double least_bytes = 0;   // of a group
  double least_rounds = 0;
  double hop_bytes = 0;     // of one message of each kind between neighbours of a pipeline: at least
  double fill_at_best = 0;  // one message of each kind over the widest ways

  // Seconds if the axis crosses ways of at most `gb_per_s`; at least `hops` of a pipeline's hops do.
  double across(double gb_per_s, int hops, double widest, double latency_us) const {
    if (gb_per_s <= 0) return infinite;
    if (hop_bytes > 0) {
      const double steady = least_bytes / (gb_per_s * 1e9);
      return std::max(inside, steady + fill_at_best + hops * hop_bytes * (1 / gb_per_s - 1 / widest) * 1e-9);
    }
    return std::max(inside, least_bytes / (gb_per_s * 1e9) + least_rounds * latency_us * 1e-6);
  }
};

AxisBound bound_of(const std::vector<CostModel::RingGroup>& groups, const Widths& widths) {
  AxisBound bound;
  if (groups.empty()) return bound;
  bound.size = static_cast<int>(groups.front().ranks.size());
  bound.least_bytes = bound.least_rounds = infinite;
  const double across_hosts = widths.across_hosts(bound.size, bound.size);
  std::map<double, int, std::greater<>> by_bytes;
  for (const CostModel::RingGroup& group : groups) {
    ++by_bytes[group.traffic.bytes];
    bound.least_bytes = std::min(bound.least_bytes, group.traffic.bytes);
    bound.least_rounds = std::min(bound.least_rounds, group.traffic.rounds);
  }
  // At least one of the k groups with the most bytes has no more bandwidth than k groups can have at once.
  int groups_so_far = 0;
  for (const auto& [bytes, count] : by_bytes) {
    groups_so_far += count;
    const double width = widths.width_for(bound.size, groups_so_far);
    const auto at_width = [&](double gb_per_s) {
      const double seconds = gb_per_s > 0 ? bytes / (gb_per_s * 1e9) : infinite;
      return seconds + bound.least_rounds * widths.least_latency_us() * 1e-6;
    };
    bound.within_hosts = std::max(bound.within_hosts, at_width(width));
    bound.inside = std::max(bound.inside, at_width(std::max(width, across_hosts)));
  }
  return bound;
}

// The bound of the pipeline; its size is 1 unless its messages join all of its ranks.
AxisBound bound_of_pipeline(const Traffic& traffic, const Widths& widths) {
  AxisBound bound;
  std::vector<int> part(at(traffic.layout.size(stage_axis)));
  std::iota(part.begin(), part.end(), 0);
  double most_bytes = 0;
  bound.least_bytes = bound.hop_bytes = infinite;
  std::map<std::pair<int, int>, double> hops;
  for (const ChainTraffic& link : traffic.chain) {
    if (link.bytes <= 0 && link.messages <= 0) continue;
    const double message = link.bytes / std::max(1.0, link.messages);
    if (widths.widest() <= 0) return {.inside = infinite, .within_hosts = infinite};
    bound.fill_at_best += message / (widths.widest() * 1e9) + widths.least_latency_us() * 1e-6;
    bound.least_bytes = std::min(bound.least_bytes, link.bytes);
    hops[{std::min(link.from, link.to), std::max(link.from, link.to)}] += message;
    most_bytes = std::max(most_bytes, link.bytes);
    const int from = part[at(link.from)], to = part[at(link.to)];
    std::replace(part.begin(), part.end(), std::max(from, to), std::min(from, to));
  }
  if (hops.empty()) return {};
  for (const auto& [ends, bytes] : hops) bound.hop_bytes = std::min(bound.hop_bytes, bytes);
  bound.inside = bound.within_hosts = most_bytes / (widths.widest() * 1e9) + bound.fill_at_best;
  if (!std::all_of(part.begin(), part.end(), [](int p) { return p == 0; })) return bound;  // size 1: parts go where they like
  bound.size = traffic.layout.size(stage_axis);
  const double width = widths.width_for(bound.size, traffic.layout.ranks() / traffic.layout.size(stage_axis));
  bound.inside = std::max(bound.inside, width > 0 ? bound.least_bytes / (width * 1e9) + bound.fill_at_best : infinite);
  bound.within_hosts = bound.inside;
  return bound;
}

}  // namespace

double placement_lower_bound(CostModel& model) {
  const Widths widths(model.fabric());
  // Rings within a stage, then the pipeline. Rings between stages only add their best cost.
  std::vector<AxisBound> axes;
  double between = 0;
  for (const CostModel::RingPhase& phase : model.phases()) {
    const AxisBound of = bound_of(phase.groups, widths);
    if (phase.kind.axes.contains(stage_axis)) {
      between += of.inside;
    } else {
      axes.push_back(of);
    }
  }
  const std::size_t rings = axes.size();
  axes.push_back(bound_of_pipeline(model.traffic(), widths));
  double bound = 0;
  for (const AxisBound& axis : axes) bound += axis.inside;
  const int ranks = model.traffic().layout.ranks();
  // Components within hosts at one width are joined by ways of the next lower width, or not at all.
  for (std::size_t w = 0; w < widths.widths().size(); ++w) {
    if (widths.joins_hosts(widths.widths()[w])) continue;
    const double joining = w == 0 ? 0 : widths.widths()[w - 1];
    const int largest = widths.largest(widths.widths()[w]);
    double least = infinite;
    for (unsigned kept = 0; kept < 1U << axes.size(); ++kept) {
      int size = 1;
      for (std::size_t a = 0; a < axes.size(); ++a) {
        if (kept >> a & 1U) size *= axes[a].size;
      }
      if (size > largest || widths.blocks(size, widths.widths()[w]) < ranks / size) continue;
      const auto seconds = [&](std::size_t a, double gb_per_s, int together) {
        const AxisBound& axis = axes[a];
        if (kept >> a & 1U) return axis.within_hosts;
        if (axis.size == 1) return axis.inside;
        return axis.across(gb_per_s, std::max(1, (axis.size + together - 1) / together - 1), widths.widest(),
                           widths.least_latency_us());
      };
      // If every group of one axis has m members on a host, and every group of another n, each pipeline rank there takes m × n
      // blocks of those that stay together. So more members of one axis leave fewer for the others, and fewer pipeline ranks in
      // one component.
      const int room = widths.largest_host() / size;
      const auto spread = [&](const auto& self, std::size_t a, int taken, double sum) -> void {
        if (a == rings) {
          least = std::min(least, sum + seconds(rings, joining, std::min(largest / size, room / taken)));
          return;
        }
        for (int members = 1; taken * members <= room; ++members) {
          const double wide = std::max(joining, widths.across_hosts(axes[a].size, members));
          self(self, a + 1, taken * members, sum + seconds(a, wide, 1));
        }
      };
      spread(spread, 0, 1, 0);
    }
    bound = std::max(bound, least);
  }
  return bound + between;
}

}  // namespace plait::plan
