// Implements log.trace_steps: runs the steps to be traced, and writes one file for all ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "comm/meeting.h"
#include "launch/rank_context.h"
#include "parallel/trace_events.h"
#include "runtime/interpreter.h"

namespace plait::train {

class StepTracer {
 public:
  // Traces those of `steps` that lie within first..last, the steps of this run; the same on all ranks.
  StepTracer(const std::vector<std::int64_t>& steps, std::int64_t first, std::int64_t last);

  bool wants(std::int64_t step) const { return steps_.contains(step); }
  // Collective: runs the step. No results may be pending before; its own is afterwards.
  void synchronize_step(runtime::Interpreter& interpreter, runtime::BatchSource& batches,
                        const runtime::UpdateSettings& settings, comm::Meeting& meeting);

  // Collective, once the last step is traced: rank 0 writes DIRECTORY/trace.json, and the steps are forgotten. `say` is told
  // where the file is and what was left out.
  bool is_full() const { return !steps_.empty() && std::ssize(traced_) == std::ssize(steps_); }
  void write(const std::filesystem::path& directory, const parallel::RankPlan& plan, const launch::RankContext& rank,
             comm::Meeting& meeting, const std::function<void(const std::string&)>& say);

 private:
  std::set<std::int64_t> steps_;
  std::vector<parallel::TracedStep> traced_;
  std::int64_t first_step_ = 0;  // number of the interpreter's step 0
  std::string no_activities_;    // why there are none
};

}  // namespace plait::train
