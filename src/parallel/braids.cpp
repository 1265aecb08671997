#include "parallel/braids.h"

#include <algorithm>

#include "parallel/pass_ends.h"

namespace plait::parallel {
namespace {

// Where every rank stands when all have gone as far as they can: the first pass of the turn that it cannot begin.
std::vector<std::size_t> stops(const Schedule& schedule) {
  PassEnds ends(schedule);
  std::vector<std::size_t> next(schedule.passes.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < next.size(); ++r) {
      const std::vector<Pass>& passes = schedule.passes[r];
      const int rank = static_cast<int>(r);
      while (next[r] < passes.size()) {
        const Turn turn = turn_at(passes, next[r]);
        const auto begin = passes.begin() + static_cast<std::ptrdiff_t>(turn.first);
        const auto end = begin + static_cast<std::ptrdiff_t>(turn.count);
        if (!std::all_of(begin, end, [&](const Pass& pass) { return ends.ready(rank, pass).has_value(); })) break;
        std::for_each(begin, end, [&](const Pass& pass) { ends.finish(rank, pass, 0); });
        next[r] = turn.end();
        moved = true;
      }
    }
  }
  return next;
}

// Takes pairs apart until everybody gets through, or only for other reasons does not.
void take_apart(Schedule& schedule) {
  for (bool again = true; again;) {
    again = false;
    const std::vector<std::size_t> stopped = stops(schedule);
    for (std::size_t r = 0; r < stopped.size(); ++r) {
      std::vector<Pass>& passes = schedule.passes[r];
      if (stopped[r] == passes.size() || turn_at(passes, stopped[r]).count == 1) continue;
      passes[stopped[r] + 1].braided = false;
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

void unbraid(Schedule& schedule) {
  for (std::vector<Pass>& passes : schedule.passes) {
    for (Pass& pass : passes) pass.braided = false;
  }
}

}  // namespace plait::parallel
