// Changes that would change the planner's answer, as sentences with numbers.
#pragma once

#include <string>
#include <vector>

#include "plan/planner.h"

namespace plait::plan {

// At most five: how much slower or faster all links would have to be for another layout to win; what a faster candidate that
// does not fit would need; what the largest avoidable part of the step is; what stages cut by seconds (`stages`, if there are
// such) and a forward ahead would gain. `too_large`: candidates that were left out for their memory.
std::vector<std::string> what_would_change(const Config& config, const parallel::Decision& decision, std::int64_t vocab,
                                           int ranks, const Site& site, const Evaluation& best,
                                           const std::vector<Evaluation>& alternatives,
                                           const std::vector<EstimatedCandidate>& too_large, const std::vector<double>& stages);

}  // namespace plait::plan
