#include "parallel/braids.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "parallel/pass_ends.h"
#include "parallel/schedule_timeline.h"

namespace plait::parallel {
namespace {

// Takes pairs apart until everybody gets through, or only for other reasons does not.
void take_apart(Schedule& schedule) {
  for (bool again = true; again;) {
    again = false;
    const Timeline played = play(schedule, [](int, const Pass&) { return 0.0; }, 0);
    for (std::size_t r = 0; r < schedule.passes.size(); ++r) {
      std::vector<Pass>& passes = schedule.passes[r];
      const std::size_t stopped = played.ranks[r].size();  // the first pass of the turn that the rank cannot begin
      if (stopped == passes.size() || turn_at(passes, stopped).count == 1) continue;
      passes[stopped + 1].braided = false;
      again = true;
    }
  }
}

bool has_forward(const Pass& a, const Pass& b) { return a.kind == PassKind::forward || b.kind == PassKind::forward; }

// Of a rank that has all stages.
void pair_up(Schedule& schedule) {
  std::vector<Pass>& passes = schedule.passes.front();
  PassEnds ends(schedule);
  for (std::size_t n = 0; n < passes.size();) {
    const bool pair = n + 1 < passes.size() && has_forward(passes[n], passes[n + 1]) && ends.ready(0, passes[n + 1]);
    if (pair) passes[n + 1].braided = true;
    for (const std::size_t end = turn_at(passes, n).end(); n < end; ++n) ends.finish(0, passes[n], 0);
  }
}

}  // namespace

Turn turn_at(const std::vector<Pass>& passes, std::size_t first) {
  return {first, first + 1 < passes.size() && passes[first + 1].braided ? 2u : 1u};
}

std::vector<Turn> turns(const std::vector<Pass>& passes) {
  std::vector<Turn> list;
  for (std::size_t n = 0; n < passes.size(); n = list.back().end()) list.push_back(turn_at(passes, n));
  return list;
}

void braid(Schedule& schedule) {
  take_apart(schedule);
  const std::vector<Pass>& first = schedule.passes.front();
  if (schedule.ranks() == 1 && std::none_of(first.begin(), first.end(), [](const Pass& p) { return p.braided; }))
    pair_up(schedule);
}

void halve(Schedule& schedule) {
  require(!schedule.halves && schedule.times.empty(), "halve: a schedule of whole micro-batches, whose messages are not timed");
  schedule.halves = true;
  schedule.micro_batches *= 2;
  for (std::vector<Pass>& passes : schedule.passes) {
    std::vector<Pass> halves;
    for (const Pass& pass : passes) {
      const bool together = pass.kind == PassKind::forward || pass.kind == PassKind::backward_input;
      halves.push_back({pass.kind, pass.chunk, 2 * pass.micro_batch, false});
      halves.push_back({pass.kind, pass.chunk, 2 * pass.micro_batch + 1, together});
    }
    passes = std::move(halves);
  }
}

void unbraid(Schedule& schedule) {
  for (std::vector<Pass>& passes : schedule.passes) {
    for (Pass& pass : passes) pass.braided = false;
  }
}

}  // namespace plait::parallel
