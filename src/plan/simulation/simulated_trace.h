// A simulated step as a trace for Perfetto, in the format and with the row names of a measured one (parallel/trace_events.h),
// so that both open side by side.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/program/program_set.h"
#include "plan/simulation/simulator.h"

namespace plait::plan {

// The file. `ranks`: which to show; all of a large job are more than a browser takes. `device_of`: a name for a rank's device,
// "cuda:3". Times begin at 0. InternalError unless the timeline was kept.
std::string simulated_trace(const parallel::ProgramSet& set, const Simulated& simulated, const std::vector<int>& ranks,
                            const std::function<std::string(int rank)>& device_of);

// One rank of each pipeline rank: data and tensor coordinates 0.
std::vector<int> one_rank_per_stage(const parallel::Layout& layout);

}  // namespace plait::plan
