// Lists the passes of a pipeline as an event-driven simulation comes to them: list scheduling (Graham 1969) with the priorities
// of zero-bubble schedules (Qi et al. 2023). Input parts of backward come first, then forwards as far as memory allows, then
// weight parts, for which nobody waits.
#pragma once

#include <optional>
#include <vector>

#include "parallel/schedule/planned_schedule.h"

namespace plait::parallel {

// The rules by which ranks choose among passes that are ready.
struct ListRules {
  std::vector<double> limit;  // by rank: limit of what its stages hold together; no more than StageTimes::limit
  double patience = 0;        // in weight parts: the longest wait for another pass that a rank prefers to beginning one
  bool forward_first = false;
  double interval = 0;  // time from the beginning of a micro-batch until the next one may begin
  // A schedule of the same stages whose forwards and input parts keep their order (its whole backwards count as input parts);
  // only the weight parts are free. Null: all passes are free.
  const Schedule* order = nullptr;
};

// A schedule of forwards, input parts and weight parts, with micro-batches in ascending order or as `rules.order` has them.
// Nothing if it would end after `latest`, or if `rules.order` needs more memory than there is; without an order it always gets
// to the end. InternalError if a rank may hold less than one micro-batch.
std::optional<Schedule> list_passes(const StageMap& stages, int micro_batches, const StageTimes& times, const ListRules& rules,
                                    double latest);

}  // namespace plait::parallel
