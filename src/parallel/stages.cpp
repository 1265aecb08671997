#include "parallel/stages.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/error.h"

namespace plait::parallel {
namespace {

// A move of the end of a stage by some segments.
struct Shift {
  int stage = 0, segments = 0;
};

// The best split so far, and one that is tried. Most tried splits load some rank more than the most loaded one of the best
// split. That shows in the stages that change; other splits are measured in full.
class Boundaries {
 public:
  Boundaries(const std::vector<double>& costs, const StageMap& map, std::vector<int> ends)
      : costs_(costs), map_(map), ends_(std::move(ends)), up_to_{0} {
    for (const double cost : costs) up_to_.push_back(up_to_.back() + cost);
    for (int stage = 0; stage < map.count(); ++stage) tried_.push_back(sum(stage));
    accept();
  }

  const std::vector<int>& ends() const { return ends_; }

  // Makes both shifts if that is better. `one` is the shift of the earlier stage.
  bool improve(const Shift& one, const Shift& other) {
    if (!is_possible(one, other)) return false;
    move(one), move(other);
    for (const Shift& s : {one, other}) {
      for (const int stage : {s.stage, s.stage + 1}) tried_[at(stage)] = over_ == 0 ? sum(stage) : tried_[at(stage)];
    }
    if (is_better()) return accept(), true;
    for (const Shift& s : {one, other}) drop(s);
    return false;
  }

  // Passes segments on through several stages, which single boundaries cannot do without a detour: moves the ends of stage
  // `from` and of ever more stages behind it by `step`, and accepts each result that is better.
  bool improve_runs(int from, int step) {
    bool improved = false;
    int known = from, to = from;  // stages before `known` are summed as they are tried
    for (; to < map_.count() - 1; ++to) {
      move({to, step});
      // The stages between keep their number of segments.
      if (begin(from) >= end(from) || end(to) >= end(to + 1) || over_ > 0) continue;
      for (; known <= to + 1; ++known) tried_[at(known)] = sum(known);
      --known;  // the next end changes it again
      if (!is_better()) continue;
      accept();
      improved = true;
      for (int again = from; again <= to; ++again) move({again, step});
      known = from;
    }
    while (to-- > from) drop({to, step});
    return improved;
  }

 private:
  using Measure = std::tuple<double, double, double>;  // how good a split is: smaller is better

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  int end(int stage) const { return ends_[at(stage)]; }
  int begin(int stage) const { return stage == 0 ? 0 : end(stage - 1); }
  std::size_t rank_of(int stage) const { return at(map_.rank_of(stage)); }
  double sum(int stage) const { return std::accumulate(costs_.begin() + begin(stage), costs_.begin() + end(stage), 0.0); }

  // True if every stage keeps a segment.
  bool is_possible(const Shift& one, const Shift& other) const {
    const int first = end(one.stage) + one.segments, second = end(other.stage) + other.segments;
    const bool are_neighbours = other.stage == one.stage + 1;
    return begin(one.stage) < first && first < (are_neighbours ? second : end(one.stage + 1)) &&
           (are_neighbours ? first : begin(other.stage)) < second && second < end(other.stage + 1);
  }

  void move(const Shift& s) {
    const double before = up_to_[at(end(s.stage))];
    ends_[at(s.stage)] += s.segments;
    const double more = up_to_[at(end(s.stage))] - before;
    give(rank_of(s.stage), more);
    give(rank_of(s.stage + 1), -more);
  }

  void give(std::size_t rank, double cost) {
    const auto is_over = [&] {
      return ranks_[rank] + more_[rank] > std::get<0>(best_) * (1 + 1e-9) ? 1 : 0;
    };  // rounding alone is no excess
    over_ -= is_over();
    more_[rank] += cost;
    over_ += is_over();
  }

  // Undoes a move that was not accepted; called once for each.
  void drop(const Shift& s) {
    ends_[at(s.stage)] -= s.segments;
    for (const int stage : {s.stage, s.stage + 1}) {
      tried_[at(stage)] = stages_[at(stage)];
      more_[rank_of(stage)] = 0;
    }
    over_ = 0;
  }

  bool is_better() { return over_ == 0 && measure() < best_; }

  Measure measure() {
    tried_ranks_.assign(at(map_.ranks()), 0.0);
    double stage_squares = 0, rank_squares = 0;
    for (int stage = 0; stage < map_.count(); ++stage) {
      const double cost = tried_[at(stage)];
      tried_ranks_[rank_of(stage)] += cost;
      stage_squares += cost * cost;
    }
    for (const double cost : tried_ranks_) rank_squares += cost * cost;
    return {*std::ranges::max_element(tried_ranks_), rank_squares, stage_squares};
  }

  void accept() {
    best_ = measure();
    stages_ = tried_;
    ranks_ = tried_ranks_;
    more_.assign(ranks_.size(), 0.0);
    over_ = 0;
  }

  const std::vector<double>& costs_;
  const StageMap& map_;
  std::vector<int> ends_;
  std::vector<double> up_to_;                // by segment: the cost of all before it
  std::vector<double> tried_, tried_ranks_;  // costs of stages and of ranks in the split that is tried
  std::vector<double> stages_, ranks_;       // the same in the best split so far
  Measure best_;
  std::vector<double> more_;  // by rank: cost in the split that is tried, less that in the best
  int over_ = 0;              // number of ranks whose cost with `more_` exceeds that of the best split's most loaded rank
};

}  // namespace

std::vector<double> segment_costs(const model::ModelShape& s, std::int64_t sequence) {
  // A product of [rows, in] and [in, out] takes 2 in out operations per token, and backward takes twice that. Attention is two
  // products over the keys that a token sees.
  const auto products = [&](std::int64_t columns) {
    return 6.0 * static_cast<double>(s.hidden) * static_cast<double>(columns);
  };
  std::vector<double> costs;
  for (int segment = 0; segment < s.segments(); ++segment) {
    switch (s.kind(segment)) {
      // It reads and writes a few rows per token, about as much as a block's elementwise work.
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
  for (bool improved = true; improved;) {
    improved = false;
    for (int from = 0; from < stages - 1; ++from) {
      for (const int step : {-1, 1}) improved = boundaries.improve_runs(from, step) || improved;
    }
    // A rank with several stages can give a large segment away only by taking a small one elsewhere at the same time: a block
    // for half of one.
    for (int first = 0; map.count() > map.ranks() && first < stages - 1; ++first) {
      for (int second = first + 1; second < stages - 1; ++second) {
        for (const int one : {-2, -1, 1, 2}) {
          for (const int other : {-2, -1, 1, 2}) improved = boundaries.improve({first, one}, {second, other}) || improved;
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
