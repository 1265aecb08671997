// Schedules from files that can run, of any placement and order.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "config/schedule_files.h"
#include "parallel/schedule/schedule.h"

namespace plait::parallel {

using Passes = std::vector<std::vector<StagePass>>;

inline ScheduleSpec spec_of(const std::shared_ptr<const ScheduleFile>& file) {
  return {.kind = ScheduleKind::file,
          .ranks = static_cast<int>(file->ranks.size()),
          .virtual_stages = 1,
          .micro_batches = file->micro_batches,
          .file = file};
}

// A schedule of random placement and order: a random rank comes next, with a random one of its passes that can run by then.
inline Passes random_passes(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const int ranks = 1 + below(4), stages = ranks + below(5), micro_batches = 1 + below(9);
  std::vector<int> rank_of(static_cast<std::size_t>(stages));
  for (int s = 0; s < stages; ++s) rank_of[static_cast<std::size_t>(s)] = s < ranks ? s : below(ranks);
  std::shuffle(rank_of.begin(), rank_of.end(), random);
  const int split = below(3);                    // how often backwards are split, of three: never, sometimes, always
  std::set<std::pair<int, int>> forward, input;  // done: stage, micro-batch
  std::vector<StagePass> left;
  for (int s = 0; s < stages; ++s) {
    for (int m = 0; m < micro_batches; ++m) {
      left.push_back({PassKind::forward, s, m});
      if (split == 2 || (split == 1 && below(2) == 0)) {
        left.push_back({PassKind::backward_input, s, m});
        left.push_back({PassKind::backward_weight, s, m});
      } else {
        left.push_back({PassKind::backward, s, m});
      }
    }
  }
  const auto can_run = [&](const StagePass& p) {
    const auto has = [&](const auto& done, int stage) { return done.contains({stage, p.micro_batch}); };
    if (p.kind == PassKind::forward) return p.stage == 0 || has(forward, p.stage - 1);
    if (p.kind == PassKind::backward_weight) return has(input, p.stage);
    return has(forward, p.stage) && (p.stage + 1 == stages || has(input, p.stage + 1));
  };
  Passes passes(static_cast<std::size_t>(ranks));
  while (!left.empty()) {
    std::vector<std::size_t> ready;
    for (std::size_t n = 0; n < left.size(); ++n) {
      if (can_run(left[n])) ready.push_back(n);
    }
    const std::size_t chosen = ready[random() % ready.size()];
    const StagePass p = left[chosen];
    if (p.kind == PassKind::forward) forward.insert({p.stage, p.micro_batch});
    if (p.kind == PassKind::backward || p.kind == PassKind::backward_input) input.insert({p.stage, p.micro_batch});
    passes[static_cast<std::size_t>(rank_of[static_cast<std::size_t>(p.stage)])].push_back(p);
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
  // Pairs that may be braided, and pairs that cannot be.
  const auto can_pair = [](const StagePass& a, const StagePass& b) {
    const auto sends_gradient = [](PassKind kind) { return kind == PassKind::backward || kind == PassKind::backward_input; };
    return (a.kind == PassKind::forward && sends_gradient(b.kind)) || (b.kind == PassKind::forward && sends_gradient(a.kind));
  };
  for (std::vector<StagePass>& of_rank : passes) {
    for (std::size_t n = 1; n < of_rank.size(); ++n) {
      if (!can_pair(of_rank[n - 1], of_rank[n]) || below(3) == 0) continue;
      of_rank[n++].braided = true;
    }
  }
  return passes;
}

}  // namespace plait::parallel
