#include "parallel/schedule/braids.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "config/pass_replay.h"
#include "core/error.h"
#include "parallel/schedule/schedule_timeline.h"

namespace plait::parallel {
namespace {

// Takes pairs apart until every rank gets to its end, or until no pair is what stops a rank.
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

// Pairs the passes of a rank that has all stages.
void pair_up(Schedule& schedule) {
  std::vector<Pass>& passes = schedule.passes.front();
  PassEnds ends(schedule.stages.rank_of_stage(), schedule.micro_batches);
  for (std::size_t n = 0; n < passes.size();) {
    const bool pair =
        n + 1 < passes.size() && has_forward(passes[n], passes[n + 1]) && !ends.missing(stage_pass(schedule, 0, passes[n + 1]));
    if (pair) passes[n + 1].braided = true;
    for (const std::size_t end = turn_at(passes, n).end(); n < end; ++n) ends.finish(stage_pass(schedule, 0, passes[n]), 0);
  }
}

bool has_pairs(const Schedule& schedule) {
  const auto is_braided = [](const Pass& pass) { return pass.braided; };
  return std::ranges::any_of(schedule.passes, [&](const auto& passes) { return std::ranges::any_of(passes, is_braided); });
}

// The schedule with every forward paired with the pass behind it, or with the one before, if that yields a gradient and nobody
// waits in a circle.
Schedule paired(Schedule schedule, bool forward_first) {
  for (std::vector<Pass>& passes : schedule.passes) {
    for (std::size_t n = 0; n + 1 < passes.size(); ++n) {
      const Pass &forward = passes[forward_first ? n : n + 1], &other = passes[forward_first ? n + 1 : n];
      passes[n + 1].braided = forward.kind == PassKind::forward && yields_gradient(other.kind) && !passes[n].braided;
    }
  }
  take_apart(schedule);
  return schedule;
}

// The time at which the pipeline ends, in passes of a rank. A pass by itself takes longer, because its exchanges are exposed. A
// whole backward hides most of them behind its weight part. On 4 H200s, tensor 2 x pipeline 2, exposed exchanges took 0.37 of
// the computing time.
double estimated_end(const Schedule& schedule) {
  constexpr double exposed = 0.35, exposed_in_pairs = 0.05, send = 0.02;
  std::vector<std::set<std::tuple<PassKind, int, int>>> in_pairs(schedule.passes.size());
  const auto key = [](const Pass& pass) { return std::tuple(pass.kind, pass.chunk, pass.micro_batch); };
  for (std::size_t r = 0; r < schedule.passes.size(); ++r) {
    for (const Turn& turn : turns(schedule.passes[r])) {
      for (std::size_t n = turn.first; turn.count > 1 && n < turn.end(); ++n) in_pairs[r].insert(key(schedule.passes[r][n]));
    }
  }
  const auto duration = [&](int rank, const Pass& pass) {
    const double waits = in_pairs[static_cast<std::size_t>(rank)].contains(key(pass)) ? exposed_in_pairs : exposed;
    const double work = pass.kind == PassKind::backward          ? 2 + waits / 3
                        : pass.kind == PassKind::backward_weight ? 1
                                                                 : 1 + waits;
    return work / schedule.stages.chunks(rank);
  };
  return play(schedule, duration, send).end;
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

std::span<const Pass> passes_of(const std::vector<Pass>& passes, const Turn& turn) {
  return {passes.data() + turn.first, turn.count};
}

std::vector<BraidedPart> order_of_parts(const std::vector<std::vector<std::size_t>>& parts) {
  std::vector<BraidedPart> order;
  for (std::size_t pass = 0; pass < parts.size(); ++pass) {
    for (std::size_t segment = 0; segment < parts[pass].size(); ++segment) {
      for (std::size_t part = 0; part < parts[pass][segment]; ++part) order.push_back({pass, segment, part});
    }
  }
  // The place of a part's middle in the turn, as a fraction.
  const auto position = [&](const BraidedPart& p) {
    const std::size_t halves = 2 * parts[p.pass][p.segment];
    return std::pair(p.segment * halves + 2 * p.part + 1, parts[p.pass].size() * halves);
  };
  std::ranges::stable_sort(order, [&](const BraidedPart& x, const BraidedPart& y) {
    const auto [where, of] = position(x);
    const auto [others_where, others_of] = position(y);
    return where * others_of < others_where * of;
  });
  return order;
}

void braid(Schedule& schedule) {
  take_apart(schedule);
  if (has_pairs(schedule)) return;
  if (schedule.ranks() == 1) return pair_up(schedule);
  if (schedule.stages.chunks(0) == 1) return;
  double soonest = estimated_end(schedule);
  std::optional<Schedule> best;
  for (const bool forward_first : {true, false}) {
    Schedule pairs = paired(schedule, forward_first);
    const double end = estimated_end(pairs);
    if (end >= soonest) continue;
    soonest = end;
    best = std::move(pairs);
  }
  if (best) schedule = *std::move(best);
}

void begin_ahead(Schedule& schedule) {
  require(schedule.ranks() == 1 && schedule.times.empty(), "begin_ahead: a schedule of one rank, which has no messages");
  std::vector<Pass> passes;
  const std::vector<Pass>& before = schedule.passes.front();
  auto next_forward = before.begin();  // among the passes that have not been taken
  const auto add_forward = [&] {
    next_forward = std::find_if(next_forward, before.end(), [](const Pass& p) { return p.kind == PassKind::forward; });
    if (next_forward != before.end()) passes.push_back(*next_forward++);
  };
  add_forward();
  for (const Pass& pass : before) {
    if (pass.kind == PassKind::forward) {
      add_forward();
    } else {
      passes.push_back(pass);
    }
  }
  schedule.passes.front() = std::move(passes);
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
