#include "parallel/stages.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "core/error.h"

namespace plait::parallel {
namespace {

// How good a split is: smaller is better.
std::tuple<double, double, double> measure(const std::vector<double>& costs, const StageMap& map,
                                           const std::vector<int>& ends) {
  std::vector<double> ranks(static_cast<std::size_t>(map.ranks()), 0.0);
  double stage_squares = 0;
  int first = 0;
  for (int stage = 0; stage < map.count(); ++stage) {
    double cost = 0;
    for (; first < ends[static_cast<std::size_t>(stage)]; ++first) cost += costs[static_cast<std::size_t>(first)];
    ranks[static_cast<std::size_t>(map.rank_of(stage))] += cost;
    stage_squares += cost * cost;
  }
  double rank_squares = 0;
  for (const double cost : ranks) rank_squares += cost * cost;
  return {*std::max_element(ranks.begin(), ranks.end()), rank_squares, stage_squares};
}

// The end of a stage moves by some segments.
struct Shift {
  int stage = 0, segments = 0;
};

class Boundaries {
 public:
  Boundaries(const std::vector<double>& costs, const StageMap& map, std::vector<int> ends)
      : costs_(costs), map_(map), ends_(std::move(ends)), up_to_{0}, more_(static_cast<std::size_t>(map.ranks())) {
    for (const double cost : costs) up_to_.push_back(up_to_.back() + cost);
    accept();
  }

  const std::vector<int>& ends() const { return ends_; }

  // Makes the shifts, of stages in ascending order, if that is better. Most are not, as they take a rank above the most loaded
  // one, which is seen from the stages that change. What is not that clear is measured.
  bool improve(std::span<const Shift> shifts) {
    apply(shifts, 1);
    if (is_possible(shifts) && !overloads(shifts)) {
      if (const Measure moved = measure(costs_, map_, ends_); moved < best_) return accept(), true;
    }
    apply(shifts, -1);
    return false;
  }

 private:
  using Measure = std::tuple<double, double, double>;

  int end(int stage) const { return ends_[static_cast<std::size_t>(stage)]; }
  int begin(int stage) const { return stage == 0 ? 0 : end(stage - 1); }
  double cost(int stage) const {
    return up_to_[static_cast<std::size_t>(end(stage))] - up_to_[static_cast<std::size_t>(begin(stage))];
  }
  std::size_t rank_of(int stage) const { return static_cast<std::size_t>(map_.rank_of(stage)); }

  void apply(std::span<const Shift> shifts, int sign) {
    for (const Shift& s : shifts) ends_[static_cast<std::size_t>(s.stage)] += sign * s.segments;
  }

  void accept() {
    best_ = measure(costs_, map_, ends_);
    ranks_.assign(static_cast<std::size_t>(map_.ranks()), 0.0);
    stages_.clear();
    for (int stage = 0; stage < map_.count(); ++stage) {
      stages_.push_back(cost(stage));
      ranks_[rank_of(stage)] += stages_.back();
    }
  }

  // Every stage keeps a segment.
  bool is_possible(std::span<const Shift> shifts) const {
    return std::ranges::all_of(
        shifts, [&](const Shift& s) { return begin(s.stage) < end(s.stage) && end(s.stage) < end(s.stage + 1); });
  }

  // Of the stages on both sides of what was shifted, each once.
  template <typename Act>
  void for_each_changed(std::span<const Shift> shifts, Act act) const {
    int next = 0;
    for (const Shift& s : shifts) {
      for (int stage = std::max(s.stage, next); stage <= s.stage + 1; ++stage) act(stage);
      next = s.stage + 2;
    }
  }

  bool overloads(std::span<const Shift> shifts) {
    const double most = std::get<0>(best_) * (1 + 1e-9);  // beyond what rounding does
    bool over = false;
    for_each_changed(shifts,
                     [&](int stage) { more_[rank_of(stage)] += cost(stage) - stages_[static_cast<std::size_t>(stage)]; });
    for_each_changed(shifts, [&](int stage) { over = over || ranks_[rank_of(stage)] + more_[rank_of(stage)] > most; });
    for_each_changed(shifts, [&](int stage) { more_[rank_of(stage)] = 0; });
    return over;
  }

  const std::vector<double>& costs_;
  const StageMap& map_;
  std::vector<int> ends_;
  std::vector<double> up_to_;  // cost of all segments before one
  Measure best_;
  std::vector<double> stages_;  // cost of each, of the best so far
  std::vector<double> ranks_;   // the same of ranks
  std::vector<double> more_;    // by rank, for the shifts that are looked at; else 0
};

}  // namespace

std::vector<double> segment_costs(const model::ModelShape& s, std::int64_t sequence) {
  // A product of [rows, in] and [in, out] is 2 in out operations per token, and twice that again in backward. Attention is
  // two products over what a token sees.
  const auto products = [&](std::int64_t columns) {
    return 6.0 * static_cast<double>(s.hidden) * static_cast<double>(columns);
  };
  std::vector<double> costs;
  for (int segment = 0; segment < s.segments(); ++segment) {
    switch (s.kind(segment)) {
      // Reads and writes a few rows per token, which is of the order of a block's elementwise work.
      case model::SegmentKind::embedding: costs.push_back(products(64)); break;
      case model::SegmentKind::attention:
        costs.push_back(products(s.qkv_dim() + s.attention_dim()) +
                        12.0 * static_cast<double>(s.attention_dim()) * s.mean_keys(segment, sequence));
        break;
      case model::SegmentKind::mlp: costs.push_back(products(s.up_dim() + s.ffn)); break;
      case model::SegmentKind::head: costs.push_back(products(s.padded_vocab)); break;
    }
  }
  return costs;
}

std::vector<SegmentRange> split_stages(const std::vector<double>& costs, const StageMap& map) {
  const int stages = map.count();
  const int segments = static_cast<int>(costs.size());
  require(stages >= 1 && stages <= segments, "split_stages: at least one segment per stage");
  // Start from equal shares of the total cost in order, then move single boundaries while that helps.
  std::vector<int> ends;
  double total = 0, done = 0;
  for (const double cost : costs) total += cost;
  int segment = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const int latest = segments - (stages - 1 - stage);  // leaves a segment for each stage to come
    const double goal = total * (stage + 1) / stages;
    do {
      done += costs[static_cast<std::size_t>(segment++)];
    } while (segment < latest && (stage == stages - 1 || done + costs[static_cast<std::size_t>(segment)] / 2 <= goal));
    ends.push_back(segment);
  }
  Boundaries boundaries(costs, map, std::move(ends));
  std::vector<Shift> shifts;
  for (bool improved = true; improved;) {
    improved = false;
    const auto attempt = [&] { improved = boundaries.improve(shifts) || improved; };
    // A run of boundaries moves one segment through several stages, which single ones cannot do without a detour.
    for (int from = 0; from < stages - 1; ++from) {
      for (const int step : {-1, 1}) {
        shifts.clear();
        for (int to = from; to < stages - 1; ++to) {
          shifts.push_back({to, step});
          attempt();
        }
      }
    }
    // Where a rank has several stages it can give a large segment away only by taking a small one elsewhere at the same time: a
    // block for its half.
    for (int first = 0; map.count() > map.ranks() && first < stages - 1; ++first) {
      for (int second = first + 1; second < stages - 1; ++second) {
        for (const int one : {-2, -1, 1, 2}) {
          for (const int other : {-2, -1, 1, 2}) {
            shifts = {{first, one}, {second, other}};
            attempt();
          }
        }
      }
    }
  }
  std::vector<SegmentRange> ranges;
  for (const int end : boundaries.ends()) ranges.push_back({ranges.empty() ? 0 : ranges.back().end, end});
  return ranges;
}

const std::vector<SegmentRange>& StageSplits::split(const std::vector<double>& costs, const StageMap& map) {
  const auto [known, is_new] = known_.try_emplace(Key{map, costs});
  if (is_new) known->second = split_stages(costs, map);
  return known->second;
}

std::vector<SegmentRange> given_stages(const std::vector<double>& transformer_blocks) {
  require(!transformer_blocks.empty(), "given_stages: at least one stage");
  std::vector<SegmentRange> ranges;
  int end = 1;  // behind the embedding
  for (const double blocks : transformer_blocks) {
    const int first = ranges.empty() ? 0 : end;
    end += static_cast<int>(2 * blocks);
    ranges.push_back({first, end});
  }
  ranges.back().end += 1;  // the head
  return ranges;
}

std::vector<double> transformer_blocks(const std::vector<SegmentRange>& stages) {
  std::vector<double> blocks;
  for (const SegmentRange& range : stages) {
    const int ends = (range.first == 0 ? 1 : 0) + (range.end == stages.back().end ? 1 : 0);
    blocks.push_back((range.end - range.first - ends) / 2.0);
  }
  return blocks;
}

}  // namespace plait::parallel
