// A schedule made from times: which pass every pipeline rank computes when, for what the passes of these stages take.
//
// Named schedules are right where all stages cost the same and messages nothing. A planned one is the shortest of many that are
// played with these times: those that list scheduling finds with several settings (parallel/schedule/list_scheduler.h), the
// orders of the named ones with weight parts where these times leave room for them, and the named ones themselves. So none of
// these is shorter in the same memory.
#pragma once

#include <functional>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace plait::parallel {

// What is known of the stages. Times and memory in any unit.
struct StageTimes {
  std::vector<double> forward = {}, backward_input = {}, backward_weight = {};  // by stage
  // By stage: by how much a whole backward is shorter than its two parts, whose exchanges nothing hides. Empty: by nothing.
  std::vector<double> saved = {};
  double send = 0;                 // until another rank has what a pass yields
  std::vector<double> held = {};   // by stage: by a micro-batch from its forward to its weight part
  std::vector<double> limit = {};  // by rank: of what its stages hold together, at least one micro-batch
};

// Of stages that are alike, with f = b = w. Every rank has room for as many micro-batches as there are ranks, as the first one
// of 1F1B needs it.
StageTimes equal_times(const StageMap& stages);

// The head's weight part follows its input part at once, in every schedule: moves what it takes in the last stage.
void take_head_at_once(StageTimes& times, double head_weight);

// When the last pass ends, each as early as its rank's order and its inputs allow. InternalError as simulate() throws.
double length_of(const Schedule& schedule, const StageTimes& times);
// The most that a rank holds at once.
double most_held(const Schedule& schedule, const StageTimes& times, int rank);

// Micro-batches go through every stage in ascending order, so that it gives the same bits as the named ones. Of several that
// are shortest the one that holds least. InternalError if a rank may hold less than one micro-batch.
Schedule planned_schedule(const StageMap& stages, int micro_batches, const StageTimes& times);

// The placements that there are for `chunks` stages per rank: for two a V, and a loop.
std::vector<StageMap> stage_placements(int ranks, int chunks);
// The schedules by name of these stages and so many micro-batches.
std::vector<Schedule> named_schedules(const StageMap& stages, int micro_batches);

// That of the placement which suits it: a loop, and for two stages per rank a V, unless the loop is a hundredth shorter.
// `times_of` is asked for each.
Schedule planned_schedule(int ranks, int chunks, int micro_batches, const std::function<StageTimes(const StageMap&)>& times_of);

}  // namespace plait::parallel
