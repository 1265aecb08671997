#include "plan/placement/exact.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>

#include "core/error.h"
#include "core/index.h"
#include "core/units.h"
#include "plan/placement/chain_bound.h"

namespace plait::plan {
namespace {

// The seconds of the best ring of `members` members that contains a set of GPUs, by the set.
std::vector<double> best_supersets(Rings& rings, int members, const RingTraffic& traffic) {
  const int gpus = rings.fabric().gpus();
  std::vector<double> best(std::size_t{1} << gpus, infinite);
  for (std::uint32_t set = 0; set < best.size(); ++set) {
    if (std::popcount(set) == members) best[set] = ring_seconds(rings.of_mask(set), traffic);
  }
  for (int size = members - 1; size >= 0; --size) {
    for (std::uint32_t set = 0; set < best.size(); ++set) {
      if (std::popcount(set) != size) continue;
      for (int gpu = 0; gpu < gpus; ++gpu) {
        if (!(set >> gpu & 1U)) best[set] = std::min(best[set], best[set | (1U << gpu)]);
      }
    }
  }
  return best;
}

// The state of one kind of ring while ranks get their GPUs.
struct Phase {
  const std::vector<CostModel::RingGroup>& groups;
  std::vector<int> group_of_rank;                         // -1: in none that sends
  std::vector<const std::vector<double>*> best_superset;  // by group
  std::vector<std::uint32_t> mask;                        // by group: its GPUs
  std::vector<double> bytes, sharing;                     // by channel: of complete groups that must cross it; their number

  Phase(const std::vector<CostModel::RingGroup>& of, int ranks, std::size_t channels,
        std::map<std::tuple<std::size_t, double, double>, std::vector<double>>& tables, Rings& rings)
      : groups(of), group_of_rank(at(ranks), -1), mask(of.size(), 0), bytes(channels, 0), sharing(channels, 0) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const CostModel::RingGroup& group = groups[g];
      for (int rank : group.ranks) group_of_rank[at(rank)] = static_cast<int>(g);
      std::vector<double>& table = tables[{group.ranks.size(), group.traffic.bytes, group.traffic.rounds}];
      if (table.empty()) table = best_supersets(rings, static_cast<int>(group.ranks.size()), group.traffic);
      best_superset.push_back(&table);
    }
  }

  double at_least() const {
    double seconds = 0;
    for (const std::vector<double>* table : best_superset) seconds = std::max(seconds, table->front());
    return seconds;
  }
};

class ExactSearch {
 public:
  ExactSearch(CostModel& model, Symmetry& symmetry, std::int64_t most_nodes)
      : model_(model),
        symmetry_(symmetry),
        layout_(model.traffic().layout),
        gpus_(model.fabric().gpus()),
        ranks_(layout_.ranks()),
        most_nodes_(most_nodes),
        chain_(model.fabric(), model.traffic()),
        chain_bytes_(model.fabric().channels().size(), 0),
        chain_sharing_(chain_bytes_.size(), 0),
        gpu_of_rank_(at(ranks_), -1),
        gpu_of_copy_(at(layout_.ranks() / layout_.size(stage_axis)), std::vector<int>(at(layout_.size(stage_axis)), -1)),
        frames_(at(ranks_) + 1) {
    for (const CostModel::RingPhase& phase : model.phases())
      axes_.push_back(std::make_unique<Phase>(phase.groups, ranks_, chain_bytes_.size(), tables_, model.rings()));
    for (Frame& frame : frames_) frame.rings.assign(axes_.size(), 0);
    for (std::size_t a = 0; a < axes_.size(); ++a) frames_[0].rings[a] = axes_[a]->at_least();
    frames_[0].fill.assign(gpu_of_copy_.size(), 0);
    frames_[0].bound = frames_[0].of_rings();
    require(layout_.size(stage_axis) == 1 || layout_.moved(0, stage_axis, 1) == std::ssize(gpu_of_copy_),
            "exact_placement: the pipeline is the slowest axis");
    links_of_.resize(at(layout_.size(stage_axis)));
    for (const ChainTraffic& link : model.traffic().chain) {
      if (link.bytes <= 0 && link.messages <= 0) continue;
      links_of_[at(std::max(link.from, link.to))].push_back(link);
    }
  }

  ExactResult run(const std::vector<int>& start) {
    result_.gpu_of_rank = start;
    result_.seconds = model_.seconds(start);
    open_bound_ = infinite;
    result_.complete = place(0, 0);
    result_.lower_bound = result_.complete ? result_.seconds : std::min(open_bound_, result_.seconds);
    return result_;
  }

 private:
  struct Frame {
    std::vector<double> rings;  // by phase: a lower bound
    double steady = 0;
    std::vector<double> fill;  // by copy: of messages with both ends placed
    double bound = 0;          // on the whole cost
    double of_rings() const { return std::accumulate(rings.begin(), rings.end(), 0.0); }
  };

  bool too_much(double bound) const {
    if (!std::isfinite(bound)) return true;
    return found_ ? bound >= result_.seconds * (1 - equal_costs) : bound > result_.seconds * (1 + equal_costs);
  }

  // Members of a group within a stage can exchange their numbers, so the first group along each axis has ascending GPUs.
  int lowest_candidate(int rank) const {
    for (const Axis axis : layout_.axes()) {
      const int before = layout_.coordinate(rank, axis) - 1;
      const bool first_of_others = layout_.moved(rank, axis, 0) == 0;
      if (axis != stage_axis && before >= 0 && first_of_others) return gpu_of_rank_[at(layout_.moved(0, axis, before))] + 1;
    }
    return 0;
  }

  // False if stopped by most_nodes_.
  bool place(int rank, std::uint32_t used) {
    if (rank == ranks_) {
      const double seconds = model_.seconds(gpu_of_rank_);
      if (too_much(seconds)) return true;
      result_.seconds = seconds;
      result_.gpu_of_rank = gpu_of_rank_;
      found_ = true;
      return true;
    }
    const Symmetry::Alike& alike = symmetry_.alike(used);
    for (int gpu = lowest_candidate(rank); gpu < gpus_; ++gpu) {
      if ((used >> gpu & 1U) || alike[at(gpu)] != gpu) continue;
      if (result_.nodes >= most_nodes_) {
        open_bound_ = std::min(open_bound_, frames_[at(rank)].bound);
        return false;
      }
      ++result_.nodes;
      const std::size_t before = undo_.size();
      assign(rank, gpu, used | (1U << gpu));
      const bool complete = too_much(frames_[at(rank) + 1].bound) || place(rank + 1, used | (1U << gpu));
      take_back(rank, gpu, before);
      if (!complete) {
        open_bound_ = std::min(open_bound_, frames_[at(rank)].bound);
        return false;
      }
    }
    return true;
  }

  void change(double& value, double to) {
    undo_.push_back({&value, value});
    value = to;
  }

  double loaded(std::vector<double>& bytes, std::vector<double>& sharing, int channel, double more) {
    change(bytes[at(channel)], bytes[at(channel)] + more);
    change(sharing[at(channel)], sharing[at(channel)] + 1);
    if (sharing[at(channel)] < 2) return 0;
    return bytes[at(channel)] / (model_.fabric().channels()[at(channel)].gb_per_s * 1e9);
  }

  void assign(int rank, int gpu, std::uint32_t used) {
    Frame& frame = frames_[at(rank) + 1];
    frame = frames_[at(rank)];
    gpu_of_rank_[at(rank)] = gpu;
    for (std::size_t a = 0; a < axes_.size(); ++a) {
      Phase& axis = *axes_[a];
      const int g = axis.group_of_rank[at(rank)];
      if (g < 0) continue;
      const CostModel::RingGroup& group = axis.groups[at(g)];
      const std::uint32_t mask = axis.mask[at(g)] |= 1U << gpu;
      frame.rings[a] = std::max(frame.rings[a], (*axis.best_superset[at(g)])[mask]);
      if (at(std::popcount(mask)) < group.ranks.size() || axis.groups.size() < 2 || !std::isfinite(frame.rings[a])) continue;
      for (const auto& [channel, share] : model_.rings().crossed(model_.rings().of_mask(mask)))
        frame.rings[a] = std::max(frame.rings[a], loaded(axis.bytes, axis.sharing, channel, share * group.traffic.bytes));
    }
    const int stage = layout_.coordinate(rank, stage_axis);
    // The pipeline is the slowest axis, so the ranks of one stage are consecutive.
    const std::size_t copy = at(layout_.moved(rank, stage_axis, 0));
    std::vector<int>& gpu_of = gpu_of_copy_[copy];
    gpu_of[at(stage)] = gpu;
    for (const ChainTraffic& link : links_of_[at(stage)]) {
      const topology::Way& way = model_.fabric().message_way(gpu_of[at(link.from)], gpu_of[at(link.to)]);
      frame.steady = std::max(frame.steady, way_seconds(way, link.bytes));
      frame.fill[copy] += way_seconds(way, link.bytes / std::max(1.0, link.messages)) + way.latency_us * 1e-6;
      for (int channel : way.channels)
        frame.steady = std::max(frame.steady, loaded(chain_bytes_, chain_sharing_, channel, link.bytes));
    }
    frame.bound = frame.of_rings() + chain_at_least(frame, rank + 1, used);
  }

  // A lower bound on the pipeline's cost, with ranks below `next` placed.
  double chain_at_least(const Frame& frame, int next, std::uint32_t used) {
    if (!chain_.sends()) return 0;
    const int copies = static_cast<int>(gpu_of_copy_.size());
    const auto placed_of = [&](int copy) { return next / copies + (copy < next % copies ? 1 : 0); };
    std::uint32_t ends = 0;
    int at_an_end = 0, open = 0;
    double filled = 0;
    for (int copy = 0; copy < copies; ++copy) {
      const int placed = placed_of(copy);
      open += placed < layout_.size(stage_axis);
      filled += frame.fill[at(copy)];
      for (int p = 0; p < layout_.size(stage_axis); ++p) {
        if (p >= placed)
          at_an_end += chain_.neighbours(p) < 2;
        else if (chain_.open(p, placed))
          ends |= 1U << gpu_of_copy_[at(copy)][at(p)];
      }
    }
    chain_.look_at(~used & ((1U << gpus_) - 1U), ends, ranks_ == gpus_ ? open : 0);
    double fill = (filled + chain_.fill_of_all()) / copies;
    for (int copy = 0; copy < copies; ++copy)
      fill = std::max(fill, frame.fill[at(copy)] + chain_.fill(placed_of(copy), gpu_of_copy_[at(copy)]));
    return std::max(frame.steady, chain_.steady(ranks_ - next, at_an_end)) + fill;
  }

  void take_back(int rank, int gpu, std::size_t before) {
    for (; undo_.size() > before; undo_.pop_back()) *undo_.back().first = undo_.back().second;
    for (const std::unique_ptr<Phase>& axis : axes_) {
      if (const int g = axis->group_of_rank[at(rank)]; g >= 0) axis->mask[at(g)] &= ~(1U << gpu);
    }
  }

  CostModel& model_;
  Symmetry& symmetry_;
  const parallel::Layout layout_;
  const int gpus_, ranks_;
  const std::int64_t most_nodes_;
  std::map<std::tuple<std::size_t, double, double>, std::vector<double>> tables_;
  std::vector<std::unique_ptr<Phase>> axes_;
  ChainBound chain_;
  std::vector<double> chain_bytes_, chain_sharing_;  // by channel
  std::vector<std::vector<ChainTraffic>> links_of_;  // by pipeline rank: those whose other end is lower
  std::vector<int> gpu_of_rank_;
  std::vector<std::vector<int>> gpu_of_copy_;  // by copy of the pipeline and pipeline rank
  std::vector<Frame> frames_;                  // by number of ranks placed
  std::vector<std::pair<double*, double>> undo_;
  ExactResult result_;
  double open_bound_ = infinite;
  bool found_ = false;
};

}  // namespace

ExactResult exact_placement(CostModel& model, Symmetry& symmetry, const std::vector<int>& start, std::int64_t most_nodes) {
  require(model.fabric().gpus() <= most_exact_gpus, "exact_placement: too many GPUs");
  return ExactSearch(model, symmetry, most_nodes).run(start);
}

}  // namespace plait::plan
