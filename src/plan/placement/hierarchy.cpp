#include "plan/placement/hierarchy.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "core/error.h"
#include "core/index.h"
#include "core/units.h"
#include "plan/placement/exact.h"
#include "plan/placement/host_refinement.h"
#include "plan/placement/local_search.h"

namespace plait::plan {
namespace {

constexpr int most_ranks_to_improve = 64;
constexpr int few_ranks = 16;                            // up to these, more than one start is improved
constexpr std::int64_t rank_costs_to_improve = 200'000;  // ranks × placements costed

// GPUs that are near each other.
struct Unit {
  std::vector<int> gpus;  // joined by NVLink, or of one NUMA node, within one host
  int host = 0;
};

class Contraction {
 public:
  explicit Contraction(topology::Fabric& fabric) : fabric_(fabric), graph_(fabric.graph()) {
    find_components();
    find_attachments();
  }

  // `quickest_first`: hosts with the widest ways inside come first, for layouts that do not need all hosts.
  std::vector<Unit> units(bool quickest_first) {
    std::vector<int> hosts(at(fabric_.hosts()));
    std::iota(hosts.begin(), hosts.end(), 0);
    std::vector<std::tuple<double, int, int, int>> key;
    for (int host : hosts)
      key.push_back({quickest_first ? -width_inside(host) : 0, wide_component_[at(host)], attachment_[at(host)], host});
    std::sort(hosts.begin(), hosts.end(), [&](int x, int y) { return key[at(x)] < key[at(y)]; });
    std::vector<Unit> units;
    for (int host : hosts) add_units(host, units);
    return units;
  }

 private:
  void find_components() {
    component_.assign(at(fabric_.gpus()), 0);
    std::vector<int> number(graph_.nodes.size(), -1);
    for (int gpu = 0; gpu < fabric_.gpus(); ++gpu) number[at(gpu_node(gpu))] = gpu;
    wide_component_.assign(at(fabric_.hosts()), std::numeric_limits<int>::max());
    int count = 0;
    for (const std::vector<int>& members : topology::nvlink_components(graph_)) {
      const int first = fabric_.host_of(number[at(members.front())]);
      bool wide = false;
      for (int node : members) {
        component_[at(number[at(node)])] = count;
        wide = wide || fabric_.host_of(number[at(node)]) != first;
      }
      for (int node : members) {
        int& known = wide_component_[at(fabric_.host_of(number[at(node)]))];
        if (wide) known = std::min(known, count);
      }
      ++count;
    }
  }

  int gpu_node(int gpu) {
    if (nodes_.empty()) nodes_ = topology::gpus_of(graph_);
    return nodes_[at(gpu)];
  }

  // Numbers each host by the first host that is attached to the same outside nodes.
  void find_attachments() {
    std::vector<std::vector<int>> outside(at(fabric_.hosts()));
    for (const topology::Edge& edge : graph_.edges) {
      for (const auto& [in, out] : {std::pair(edge.a, edge.b), std::pair(edge.b, edge.a)}) {
        const int host = fabric_.host_of_node(in);
        if (graph_.nodes[at(out)].host < 0 && host >= 0) outside[at(host)].push_back(out);
      }
    }
    std::map<std::vector<int>, int> known;
    for (int host = 0; host < fabric_.hosts(); ++host) {
      std::sort(outside[at(host)].begin(), outside[at(host)].end());
      attachment_.push_back(known.insert({outside[at(host)], host}).first->second);
    }
  }

  // The total bandwidth from a host's first GPU to its others.
  double width_inside(int host) {
    double sum = 0;
    const int first = fabric_.first_gpu(host);
    for (int gpu = first + 1; gpu < fabric_.first_gpu(host + 1); ++gpu) sum += fabric_.way(first, gpu).gb_per_s;
    return sum;
  }

  void add_units(int host, std::vector<Unit>& units) {
    std::vector<int> gpus(at(fabric_.first_gpu(host + 1) - fabric_.first_gpu(host)));
    std::iota(gpus.begin(), gpus.end(), fabric_.first_gpu(host));
    std::map<int, int> numa_of_component;
    bool spans = false;  // NVLink joins GPUs of several NUMA nodes, so it shows nearness better than NUMA nodes do
    bool linked = false;
    for (int gpu : gpus) {
      const auto [found, added] = numa_of_component.insert({component_[at(gpu)], fabric_.gpu(gpu).numa});
      spans = spans || found->second != fabric_.gpu(gpu).numa;
      linked = linked || !added;
    }
    const auto key = [&](int gpu) {
      const int numa = fabric_.gpu(gpu).numa, component = linked ? component_[at(gpu)] : 0;
      return spans ? std::tuple(component, numa, gpu) : std::tuple(numa, component, gpu);
    };
    std::sort(gpus.begin(), gpus.end(), [&](int x, int y) { return key(x) < key(y); });
    const auto unit_of = [&](int gpu) { return spans || linked ? component_[at(gpu)] : fabric_.gpu(gpu).numa; };
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      if (i == 0 || unit_of(gpus[i]) != unit_of(gpus[i - 1])) units.push_back({{}, host});
      units.back().gpus.push_back(gpus[i]);
    }
  }

  topology::Fabric& fabric_;
  const topology::Graph& graph_;
  std::vector<int> nodes_;
  std::vector<int> component_;       // by GPU
  std::vector<int> wide_component_;  // by host: its first component that spans hosts
  std::vector<int> attachment_;      // by host
};

// Orders the GPUs by unit: first whole blocks of `block` within a unit, then blocks of the remainders within a host, then the
// rest.
std::vector<int> in_blocks(const std::vector<Unit>& units, int block) {
  std::vector<int> order, rest, left;
  const auto take = [&](const std::vector<int>& gpus, std::vector<int>& remainder) {
    const std::size_t whole = gpus.size() / at(block) * at(block);
    order.insert(order.end(), gpus.begin(), gpus.begin() + static_cast<std::ptrdiff_t>(whole));
    remainder.insert(remainder.end(), gpus.begin() + static_cast<std::ptrdiff_t>(whole), gpus.end());
  };
  for (std::size_t i = 0; i < units.size(); ++i) {
    take(units[i].gpus, left);
    if (i + 1 == units.size() || units[i + 1].host != units[i].host) {
      take(std::vector<int>(left), rest);
      left.clear();
    }
  }
  order.insert(order.end(), rest.begin(), rest.end());
  return order;
}

// The axes by the distance of their members in the order of GPUs, innermost first.
using Nesting = std::vector<Axis>;

// The place of a pipeline rank in a folded order: 0, the last one, 1, the last but one, ...
int folded_place(int pipeline, int count) { return pipeline < (count + 1) / 2 ? 2 * pipeline : 2 * (count - 1 - pipeline) + 1; }

std::vector<int> lay_along(const std::vector<int>& order, const parallel::Layout& layout, const Nesting& nesting, bool folded) {
  std::vector<int> gpu_of_rank(at(layout.ranks()));
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    parallel::Coordinates c = layout.coordinates(rank);
    if (folded) c[stage_axis] = folded_place(c[stage_axis], layout.size(stage_axis));
    int place = 0;
    for (std::size_t level = nesting.size(); level-- > 0;) place = place * layout.size(nesting[level]) + c[nesting[level]];
    gpu_of_rank[at(rank)] = order[at(place)];
  }
  return gpu_of_rank;
}

}  // namespace

std::vector<std::vector<int>> nested_placements(topology::Fabric& fabric, const Traffic& traffic) {
  const parallel::Layout& layout = traffic.layout;
  require(layout.ranks() <= fabric.gpus(), "nested_placements: more ranks than GPUs");
  // Every order of the axes; first that of the mesh, with its fastest axis innermost.
  std::vector<Nesting> nestings;
  std::vector<std::size_t> places(layout.axes().size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  do {
    Nesting nesting;
    for (const std::size_t n : places) nesting.push_back(layout.axes()[layout.axes().size() - 1 - n]);
    nestings.push_back(std::move(nesting));
  } while (std::next_permutation(places.begin(), places.end()));
  std::vector<std::vector<int>> placements(1, std::vector<int>(at(layout.ranks())));
  std::iota(placements[0].begin(), placements[0].end(), 0);
  Contraction contraction(fabric);
  std::vector<std::vector<Unit>> unit_lists = {contraction.units(false)};
  if (layout.ranks() < fabric.gpus()) unit_lists.push_back(contraction.units(true));
  const int last = layout.size(stage_axis) - 1;
  const bool between_stages = std::any_of(traffic.rings.begin(), traffic.rings.end(), [](const GroupTraffic& of) {
    return of.group.model_ends &&
           std::any_of(of.by_pipeline.begin(), of.by_pipeline.end(), [](const RingTraffic& ring) { return ring.bytes > 0; });
  });
  const bool joined_ends = last > 2 && ((between_stages && std::abs(traffic.ends.first - traffic.ends.last) == last) ||
                                        std::any_of(traffic.chain.begin(), traffic.chain.end(), [&](const ChainTraffic& link) {
                                          return std::abs(link.from - link.to) == last && link.bytes > 0;
                                        }));
  const auto add = [&](const std::vector<int>& order, const Nesting& nesting, bool folded) {
    std::vector<int> placement = lay_along(order, layout, nesting, folded);
    if (std::find(placements.begin(), placements.end(), placement) == placements.end())
      placements.push_back(std::move(placement));
  };
  for (const std::vector<Unit>& units : unit_lists) {
    for (const Nesting& nesting : nestings) {
      std::vector<std::vector<int>> orders;
      int block = 1;
      for (const Axis axis : nesting) {  // the block of all inner axes stays together
        std::vector<int> order = in_blocks(units, block);
        if (std::find(orders.begin(), orders.end(), order) == orders.end()) orders.push_back(std::move(order));
        block *= layout.size(axis);
      }
      for (const std::vector<int>& order : orders) {
        add(order, nesting, false);
        if (joined_ends) add(order, nesting, true);
      }
    }
  }
  return placements;
}

HierarchyResult hierarchical_placement(CostModel& model, std::int64_t annealing_steps) {
  HierarchyResult result;
  std::vector<std::pair<double, std::size_t>> order;
  std::vector<std::vector<int>> placements = nested_placements(model.fabric(), model.traffic());
  double enough = infinite;
  for (std::size_t i = 0; i < placements.size(); ++i) {
    order.push_back({model.seconds(placements[i], enough), i});
    // Refinement may reverse the order of two placements within this factor. Small layouts are improved from any start.
    if (model.traffic().layout.ranks() > most_ranks_to_improve) enough = std::min(enough, 1.5 * order.back().first);
  }
  const double identity = order.front().first;
  std::stable_sort(order.begin(), order.end());
  result.placements = static_cast<std::int64_t>(placements.size());
  result.seconds = infinite;
  constexpr std::size_t to_refine = 3;
  for (std::size_t i = 0; i < std::min(to_refine, order.size()); ++i) {
    std::vector<int> placement = placements[order[i].second];
    double seconds = order[i].first;
    std::vector<int> refined = refine_within_hosts(model, placement);
    if (refined != placement) {
      const double after = model.seconds(refined);
      ++result.placements;
      if (after < seconds) placement = std::move(refined), seconds = after;
    }
    const int ranks = static_cast<int>(placement.size());
    if (ranks <= (i == 0 ? most_ranks_to_improve : few_ranks) && model.fabric().gpus() <= 2 * most_ranks_to_improve) {
      const std::int64_t costs = rank_costs_to_improve / ranks;
      if (i == 0) seconds = anneal(model, placement, std::min(annealing_steps, costs));
      seconds = improve(model, placement, Goal::cheaper, costs);
    }
    if (i == 0 || seconds < result.seconds * (1 - equal_costs)) {
      result.seconds = seconds;
      result.gpu_of_rank = std::move(placement);
    }
  }
  if (!(result.seconds < identity * (1 - equal_costs))) {
    result.seconds = identity;
    result.gpu_of_rank = placements.front();
  }
  return result;
}

}  // namespace plait::plan
