// A schedule made from times: it says which pass every pipeline rank computes when, given the time of each pass of these
// stages.
//
// Named schedules are right where all stages cost the same and messages nothing. A planned one is the shortest of many that are
// tried with these times: those that list scheduling finds with several settings (parallel/schedule/list_scheduler.h), the
// orders of the named ones with weight parts where these times leave room for them, and the named ones themselves. So none of
// these is shorter in the same memory.
#pragma once

#include <functional>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace plait::parallel {

// The times and memory of the stages, in any unit.
struct StageTimes {
  std::vector<double> forward = {}, backward_input = {}, backward_weight = {};  // by stage
  // By stage: the time that a whole backward saves over its two parts, whose exchanges nothing hides. Empty: none.
  std::vector<double> saved = {};
  double send = 0;                 // time until another rank has the result of a pass
  std::vector<double> held = {};   // by stage: held by a micro-batch from its forward to its weight part
  std::vector<double> limit = {};  // by rank: limit of what its stages hold together, at least one micro-batch
};

// The times of stages that are alike, with f = b = w. Every rank has room for as many micro-batches as there are ranks: the
// first one of 1F1B needs that.
StageTimes equal_times(const StageMap& stages);

// Moves the time of the head's weight part to the last stage's input part, which it follows at once in every schedule.
void take_head_at_once(StageTimes& times, double head_weight);

// The time when the last pass ends if each begins as early as its rank's order and its inputs allow. InternalError as from
// simulate().
double length_of(const Schedule& schedule, const StageTimes& times);
// The most that a rank holds at once.
double most_held(const Schedule& schedule, const StageTimes& times, int rank);

// The shortest schedule found. Micro-batches go through every stage in ascending order, so that it gives the same bits as the
// named ones. Of several shortest schedules it is the one that holds least. InternalError if a rank may hold less than one
// micro-batch.
Schedule planned_schedule(const StageMap& stages, int micro_batches, const StageTimes& times);

// The possible placements of `chunks` stages per rank: for two a V and a loop, else a loop.
std::vector<StageMap> stage_placements(int ranks, int chunks);
// The named schedules for these stages and so many micro-batches.
std::vector<Schedule> named_schedules(const StageMap& stages, int micro_batches);

// The planned schedule with the placement that suits it: a loop, and for two stages per rank a V, unless the loop is a
// hundredth shorter. `times_of` is called for each placement.
Schedule planned_schedule(int ranks, int chunks, int micro_batches, const std::function<StageTimes(const StageMap&)>& times_of);

}  // namespace plait::parallel
