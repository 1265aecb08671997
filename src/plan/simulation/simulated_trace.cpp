#include "plan/simulation/simulated_trace.h"

#include <algorithm>
#include <limits>

#include "core/units.h"
#include "parallel/trace_events.h"

namespace plait::plan {
namespace {

parallel::StepTrace step_trace(const parallel::Program& program, const std::vector<InstructionTimes>& times,
                               double step_seconds) {
  parallel::StepTrace trace;
  trace.end = to_ms * step_seconds;
  for (int n = 0; n < static_cast<int>(times.size()); ++n) {
    const InstructionTimes& t = times[static_cast<std::size_t>(n)];
    parallel::StepTrace::Slice slice{n, to_ms * t.reached, to_ms * t.came, to_ms * t.end, std::nullopt};
    const parallel::Instruction& i = program.at(n);
    const bool communicates = parallel::communication_kind(i).has_value();
    if (communicates && !parallel::is_send(i.kind)) slice.ready = to_ms * t.begin;
    trace.slices.push_back(slice);
  }
  return trace;
}

}  // namespace

std::string simulated_trace(const parallel::ProgramSet& set, const Simulated& simulated, const std::vector<int>& ranks,
                            const std::function<std::string(int rank)>& device_of) {
  // Streams may have reached an instruction before the compute stream began the step.
  double earliest = 0;
  for (const int rank : ranks) {
    for (const InstructionTimes& t : simulated.timeline_of(rank)) earliest = std::min(earliest, t.reached);
  }
  const auto shift = std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(-earliest));
  std::vector<std::string> events;
  for (const int rank : ranks) {
    parallel::TracedStep step{step_trace(set.program(rank), simulated.timeline_of(rank), simulated.step_seconds), {}};
    step.trace.origin = std::chrono::steady_clock::time_point(shift);
    const std::string device = device_of(rank) + ", simulated";
    events.push_back(parallel::trace_events(set.program(rank), simulated.layout, rank, device, {step}, 0,
                                            std::numeric_limits<std::size_t>::max())
                         .events);
  }
  return parallel::trace_file(events);
}

std::vector<int> one_rank_per_stage(const parallel::Layout& layout) {
  std::vector<int> ranks;
  for (int pipeline = 0; pipeline < layout.size(stage_axis); ++pipeline) ranks.push_back(layout.rank({{stage_axis, pipeline}}));
  return ranks;
}

}  // namespace plait::plan
