#include "parallel/schedule/planned_schedule.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "core/error.h"
#include "parallel/schedule/list_scheduler.h"
#include "parallel/schedule/schedule_timeline.h"

namespace plait::parallel {
namespace {

constexpr double rounding = 1e-9;

// The share by which a loop has to be shorter than a V, which sends less because its middle is on one rank. Messages delay one
// another, and computing, in ways that the times of stages do not show.
constexpr double worth_more_messages = 0.01;

double at(const std::vector<double>& list, int index) { return list[static_cast<std::size_t>(index)]; }

double held_by_all(const StageMap& stages, const StageTimes& times, int rank) {
  double whole = 0;
  for (int c = 0; c < stages.chunks(rank); ++c) whole += at(times.held, stages.stage(rank, c));
  return whole;
}

// Joins the two parts of a backward that follow one another into one pass: all of them, or only those that make nobody wait
// longer (of the first stage) or that save something. A whole backward holds nothing between its parts, but sends its gradient
// when it ends.
enum class Join { all, harmless };
Schedule joined(Schedule schedule, const StageTimes& times, Join which) {
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    std::vector<Pass> list;
    for (const Pass& pass : schedule.passes[static_cast<std::size_t>(rank)]) {
      const int stage = schedule.stages.stage(rank, pass.chunk);
      const bool saves = !times.saved.empty() && at(times.saved, stage) > 0;
      if (pass.kind == PassKind::backward_weight && (which == Join::all || saves || stage == 0) && !list.empty() &&
          list.back() == Pass{PassKind::backward_input, pass.chunk, pass.micro_batch}) {
        list.back().kind = PassKind::backward;
      } else {
        list.push_back(pass);
      }
    }
    schedule.passes[static_cast<std::size_t>(rank)] = std::move(list);
  }
  return schedule;
}

// The search for one placement.
class Search {
 public:
  Search(const StageMap& stages, int micro_batches, const StageTimes& times)
      : stages_(stages), micro_batches_(micro_batches), times_(times), least_(least_length()) {
    for (int rank = 0; rank < stages.ranks(); ++rank) {
      require(held_by_all(stages, times, rank) <= at(times.limit, rank) * (1 + rounding),
              "planned_schedule: a rank may hold less than one micro-batch");
      double saved = 0;
      for (int c = 0; c < stages.chunks(rank) && !times.saved.empty(); ++c) saved += at(times.saved, stages.stage(rank, c));
      most_saved_ = std::max(most_saved_, micro_batches * saved);
    }
  }

  Schedule run() {
    const std::vector<Schedule> named = named_schedules(stages_, micro_batches_);
    for (const Schedule& schedule : named) consider(schedule);
    for (const double patience : {0.0, 0.5}) {
      for (const Schedule& schedule : named) list({.limit = times_.limit, .patience = patience, .order = &schedule});
    }
    // Few micro-batches in flight are tried first, as those hold least. If memory is short, it also helps to let micro-batches
    // begin no faster than the busiest rank computes them, so that they do not wait half-way and hold what they have (Qi et al.
    // 2024, "Pipeline parallelism with controllable memory", begin one in each period).
    std::set<std::vector<double>> seen;
    for (const int more : {0, 1, 2, stages_.ranks() / 2, stages_.ranks(), micro_batches_}) {
      ListRules rules{.limit = limits(more)};
      if (!seen.insert(rules.limit).second) continue;
      for (const double interval : {0.0, busiest()}) {
        for (const double patience : {0.0, 0.5}) {
          for (const bool forward_first : {false, true}) {
            rules.interval = interval, rules.patience = patience, rules.forward_first = forward_first;
            list(rules);
          }
        }
      }
    }
    require(best_.has_value(), "planned_schedule: no list fits");  // those without an order always fit
    best_->name = "planned";
    return std::move(*best_);
  }

 private:
  double whole(int stage) const {
    const double saved = times_.saved.empty() ? 0 : at(times_.saved, stage);
    return at(times_.forward, stage) + at(times_.backward_input, stage) + at(times_.backward_weight, stage) - saved;
  }

  // The time of a micro-batch on the rank that takes longest for it.
  double busiest() const {
    double most = 0;
    for (int rank = 0; rank < stages_.ranks(); ++rank) {
      double all = 0;
      for (int c = 0; c < stages_.chunks(rank); ++c) all += whole(stages_.stage(rank, c));
      most = std::max(most, all);
    }
    return most;
  }

  // A lower bound for the length: what a rank computes, from the moment the first micro-batch can have come to it.
  double least_length() const {
    double least = 0, now = 0;
    std::vector<double> arrival(static_cast<std::size_t>(stages_.ranks()), -1), work(arrival.size(), 0);
    for (int stage = 0; stage < stages_.count(); ++stage) {
      const auto rank = static_cast<std::size_t>(stages_.rank_of(stage));
      if (stage > 0 && stages_.rank_of(stage - 1) != stages_.rank_of(stage)) now += times_.send;
      if (arrival[rank] < 0) arrival[rank] = now;
      now += at(times_.forward, stage);
      work[rank] += micro_batches_ * whole(stage);
      least = std::max(least, arrival[rank] + work[rank]);
    }
    return least;
  }

  // By rank: memory for the micro-batches that it needs until its first gradient comes, and for `more` of them.
  std::vector<double> limits(int more) const {
    std::vector<double> list;
    for (int rank = 0; rank < stages_.ranks(); ++rank) {
      const int needed = stages_.chunks(rank) == 1 ? stages_.ranks() - rank : stages_.ranks();
      list.push_back(
          std::min(at(times_.limit, rank), held_by_all(stages_, times_, rank) * std::min(needed + more, micro_batches_)));
    }
    return list;
  }

  void list(const ListRules& rules) {
    if (shortest_ <= least_ * (1 + rounding)) return;
    // With its backwards joined, the schedule may be shorter than it is listed.
    std::optional<Schedule> schedule = list_passes(stages_, micro_batches_, times_, rules, shortest_ + most_saved_);
    if (!schedule) return;
    consider(joined(*schedule, times_, Join::all));
    consider(joined(*schedule, times_, Join::harmless));
    consider(std::move(*schedule));
  }

  void consider(Schedule schedule) {
    double fullest = 0;  // largest share of its memory that a rank uses
    for (int rank = 0; rank < stages_.ranks(); ++rank)
      fullest = std::max(fullest, most_held(schedule, times_, rank) / at(times_.limit, rank));
    if (fullest > 1 + rounding) return;
    const double length = length_of(schedule, times_);
    if (length > shortest_ * (1 + rounding)) return;
    if (length >= shortest_ * (1 - rounding) && fullest >= fullest_ * (1 - rounding)) return;
    shortest_ = length, fullest_ = fullest;
    best_ = std::move(schedule);
  }

  const StageMap& stages_;
  const int micro_batches_;
  const StageTimes& times_;
  const double least_;
  double most_saved_ = 0;  // time that whole backwards save on one rank, at most
  std::optional<Schedule> best_;
  double shortest_ = std::numeric_limits<double>::infinity(), fullest_ = shortest_;
};

}  // namespace

StageTimes equal_times(const StageMap& stages) {
  const std::vector<double> one(static_cast<std::size_t>(stages.count()), 1.0);
  StageTimes times{.forward = one, .backward_input = one, .backward_weight = one, .send = 0, .held = one, .limit = {}};
  for (int rank = 0; rank < stages.ranks(); ++rank) times.limit.push_back(stages.ranks() * stages.chunks(rank));
  return times;
}

void take_head_at_once(StageTimes& times, double head_weight) {
  times.backward_input.back() += head_weight;
  times.backward_weight.back() -= head_weight;
}

double length_of(const Schedule& schedule, const StageTimes& times) {
  const StageMap& stages = schedule.stages;
  const auto cost = [&](int rank, const Pass& pass) {
    const int stage = stages.stage(rank, pass.chunk);
    switch (pass.kind) {
      case PassKind::forward: return at(times.forward, stage);
      case PassKind::backward_input: return at(times.backward_input, stage);
      case PassKind::backward_weight: return at(times.backward_weight, stage);
      case PassKind::backward:
        return at(times.backward_input, stage) + at(times.backward_weight, stage) -
               (times.saved.empty() ? 0 : at(times.saved, stage));
    }
    throw InternalError("PassKind: no such kind");
  };
  return simulate(schedule, cost, times.send).end;
}

double most_held(const Schedule& schedule, const StageTimes& times, int rank) {
  double now = 0, most = 0;
  for (const Pass& pass : schedule.passes[static_cast<std::size_t>(rank)]) {
    const double held = at(times.held, schedule.stages.stage(rank, pass.chunk));
    if (pass.kind == PassKind::forward) most = std::max(most, now += held);
    if (adds_to_weights(pass.kind)) now -= held;
  }
  return most;
}

std::vector<StageMap> stage_placements(int ranks, int chunks) {
  std::vector<StageMap> list;
  if (chunks == 2) list.emplace_back(StagePlacement::v, ranks, chunks);
  list.emplace_back(StagePlacement::loop, ranks, chunks);
  return list;
}

std::vector<Schedule> named_schedules(const StageMap& stages, int micro_batches) {
  std::vector<Schedule> list;
  const int chunks = stages.chunks(0);
  for (const ScheduleRow& row : built_in_schedules) {
    if (row.kind == ScheduleKind::planned || row.chunks_with(chunks) != chunks) continue;
    if (row.in_rounds && micro_batches % stages.ranks() != 0) continue;
    Schedule schedule =
        make_schedule({.kind = row.kind, .ranks = stages.ranks(), .virtual_stages = chunks, .micro_batches = micro_batches});
    if (schedule.stages == stages) list.push_back(std::move(schedule));
  }
  return list;
}

Schedule planned_schedule(const StageMap& stages, int micro_batches, const StageTimes& times) {
  return Search(stages, micro_batches, times).run();
}

Schedule planned_schedule(int ranks, int chunks, int micro_batches,
                          const std::function<StageTimes(const StageMap&)>& times_of) {
  std::optional<Schedule> best;
  double shortest = std::numeric_limits<double>::infinity();
  for (const StageMap& stages : stage_placements(ranks, chunks)) {
    const StageTimes times = times_of(stages);
    Schedule schedule = planned_schedule(stages, micro_batches, times);
    const double length = length_of(schedule, times);
    if (best && length >= shortest * (1 - worth_more_messages)) continue;
    best = std::move(schedule), shortest = length;
  }
  return std::move(*best);
}

}  // namespace plait::parallel
