// log.trace_steps: takes the steps that are to be traced, and writes one file for all ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "launch/launch.h"
#include "parallel/trace_events.h"
#include "runtime/device_activities.h"
#include "runtime/interpreter.h"

namespace plait::train {

class StepTracer {
 public:
  // Those of `steps` that are within first..last, which this run takes; the same on all ranks.
  StepTracer(const std::vector<std::int64_t>& steps, std::int64_t first, std::int64_t last);

  bool wants(std::int64_t step) const { return steps_.contains(step); }
  // Collective: takes the step; no results may be pending, and its own is left.
  void synchronize_step(runtime::Interpreter& interpreter, runtime::BatchSource& batches,
                        const runtime::UpdateSettings& settings, launch::RankContext& rank);

  // Collective: rank 0 writes DIRECTORY/trace.json once the last step is traced, and nothing is kept. `say`: where that is, and
  // what it does not hold.
  bool is_full() const { return !steps_.empty() && std::ssize(traced_) == std::ssize(steps_); }
  void write(const std::filesystem::path& directory, const parallel::RankPlan& plan, launch::RankContext& rank,
             const std::function<void(const std::string&)>& say);

 private:
  std::set<std::int64_t> steps_;
  std::vector<parallel::TracedStep> traced_;
  std::int64_t first_step_ = 0;  // number of the interpreter's step 0
  std::string no_activities_;    // why there are none
};

}  // namespace plait::train
