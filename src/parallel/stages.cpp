#include "parallel/stages.h"

#include <algorithm>
#include <tuple>

#include "core/error.h"

namespace plait::parallel {
namespace {

// How good a split is: smaller is better.
std::tuple<double, double, double> measure(const std::vector<double>& costs, const Schedule& schedule, const std::vector<int>& ends) {
  std::vector<double> ranks(static_cast<std::size_t>(schedule.ranks), 0.0);
  double stage_squares = 0;
  int first = 0;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    double cost = 0;
    for (; first < ends[static_cast<std::size_t>(stage)]; ++first) cost += costs[static_cast<std::size_t>(first)];
    ranks[static_cast<std::size_t>(schedule.rank_of(stage))] += cost;
    stage_squares += cost * cost;
  }
  double rank_squares = 0;
  for (const double cost : ranks) rank_squares += cost * cost;
  return {*std::max_element(ranks.begin(), ranks.end()), rank_squares, stage_squares};
}

}  // namespace

std::vector<double> block_costs(const model::ModelShape& s, std::int64_t sequence) {
  // A product of [rows, in] and [in, out] is 2 in out operations per token, and twice that again in backward. Causal attention
  // is two products over half of the sequence.
  const double linear = 6.0 * static_cast<double>(s.hidden) *
                        static_cast<double>(s.qkv_dim() + s.attention_dim() + s.up_dim() + s.ffn);
  const double attention = 6.0 * static_cast<double>(s.attention_dim()) * static_cast<double>(sequence);
  const double head = 6.0 * static_cast<double>(s.hidden) * static_cast<double>(s.padded_vocab);
  std::vector<double> costs(static_cast<std::size_t>(s.blocks()), linear + attention);
  // The embedding reads and writes a few rows per token; what it costs is of the order of a block's elementwise work.
  costs.front() = 6.0 * static_cast<double>(s.hidden) * 64.0;
  costs.back() = head;
  return costs;
}

std::vector<BlockRange> split_stages(const std::vector<double>& costs, const Schedule& schedule) {
  const int stages = schedule.stages();
  const int blocks = static_cast<int>(costs.size());
  require(stages >= 1 && stages <= blocks, "split_stages: at least one block per stage");
  // Start from equal shares of the total cost in order, then move single boundaries while that helps.
  std::vector<int> ends;
  double total = 0, done = 0;
  for (const double cost : costs) total += cost;
  int block = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const int latest = blocks - (stages - 1 - stage);  // leaves a block for each stage to come
    const double goal = total * (stage + 1) / stages;
    do {
      done += costs[static_cast<std::size_t>(block++)];
    } while (block < latest && (stage == stages - 1 || done + costs[static_cast<std::size_t>(block)] / 2 <= goal));
    ends.push_back(block);
  }
  auto best = measure(costs, schedule, ends);
  for (bool improved = true; improved;) {
    improved = false;
    // Shifting a run of boundaries moves one block through several stages, which single moves cannot do without a detour.
    for (int from = 0; from < stages - 1; ++from) {
      for (int to = from; to < stages - 1; ++to) {
        for (const int step : {-1, 1}) {
          std::vector<int> moved = ends;
          for (int i = from; i <= to; ++i) moved[static_cast<std::size_t>(i)] += step;
          int previous = 0;
          bool valid = true;
          for (const int end : moved) {
            valid = valid && end > previous;
            previous = end;
          }
          if (!valid || measure(costs, schedule, moved) >= best) continue;
          best = measure(costs, schedule, moved);
          ends = moved;
          improved = true;
        }
      }
    }
  }
  std::vector<BlockRange> ranges;
  for (const int end : ends) ranges.push_back({ranges.empty() ? 0 : ranges.back().end, end});
  return ranges;
}

std::vector<BlockRange> given_stages(const std::vector<std::int64_t>& transformer_blocks) {
  require(!transformer_blocks.empty(), "given_stages: at least one stage");
  std::vector<BlockRange> ranges;
  int end = 1;  // behind the embedding
  for (const std::int64_t blocks : transformer_blocks) {
    const int first = ranges.empty() ? 0 : end;
    end += static_cast<int>(blocks);
    ranges.push_back({first, end});
  }
  ranges.back().end += 1;  // the head
  return ranges;
}

}  // namespace plait::parallel
