#include "train/trace/step_tracer.h"

#include <spdlog/fmt/fmt.h>

#include "core/file.h"
#include "runtime/device_activities.h"

namespace plait::train {
namespace {

// Limit on one rank's events, to spare file systems and the rendezvous.
constexpr std::size_t most_trace_bytes = std::size_t{64} << 20;
constexpr std::size_t most_word_bytes = 2 * most_trace_bytes;  // with every other character escaped

}  // namespace

StepTracer::StepTracer(const std::vector<std::int64_t>& steps, std::int64_t first, std::int64_t last) {
  for (const std::int64_t step : steps) {
    if (step >= first && step <= last) steps_.insert(step);
  }
}

void StepTracer::synchronize_step(runtime::Interpreter& interpreter, runtime::BatchSource& batches,
                                  const runtime::UpdateSettings& settings, comm::Meeting& meeting) {
  interpreter.synchronize();
  runtime::DeviceActivities activities(interpreter.memory().device(), interpreter.streams());
  // Starting to record may wait for work of other GPUs of the process: none of it may be waiting for a message of this rank.
  meeting.meet("trace of step " + std::to_string(settings.update));
  parallel::TracedStep step;
  step.trace = interpreter.synchronize_traced_step(batches, settings);
  step.activities = activities.synchronize_take();
  no_activities_ = activities.why_missing();
  first_step_ = settings.update - step.trace.step;
  traced_.push_back(std::move(step));
}

void StepTracer::write(const std::filesystem::path& directory, const parallel::RankPlan& plan, const launch::RankContext& rank,
                       comm::Meeting& meeting, const std::function<void(const std::string&)>& say) {
  const auto busy = meeting.busy();
  const std::string device = to_string(rank.device) + " " + device_name(rank.device);
  parallel::TraceText own = trace_events(plan.train, plan.layout, plan.rank, device, traced_, first_step_, most_trace_bytes);
  traced_.clear();
  steps_.clear();
  const std::vector<std::string> events = meeting.gather_on(0, "trace", own.events, most_word_bytes);
  if (!rank.is_main) return;
  const std::filesystem::path path = directory / "trace.json";
  write_text_file(path, parallel::trace_file(events));
  say(fmt::format("trace: {} (open it in https://ui.perfetto.dev)", path.string()));
  if (!no_activities_.empty()) say("trace: without the GPUs' own times of kernels: " + no_activities_);
  if (own.left_out > 0) say(fmt::format("trace: {} kernels and copies of rank 0 did not fit and were left out", own.left_out));
}

}  // namespace plait::train
