#include "train/trace/step_tracer.h"

#include <spdlog/fmt/fmt.h>

#include "core/file.h"

namespace plait::train {
namespace {

constexpr std::chrono::minutes timeout{10};
// Of a rank's events, so that no file system or rendezvous has to take more.
constexpr std::size_t most_trace_bytes = std::size_t{64} << 20;

}  // namespace

StepTracer::StepTracer(const std::vector<std::int64_t>& steps, std::int64_t first, std::int64_t last) {
  for (const std::int64_t step : steps) {
    if (step >= first && step <= last) steps_.insert(step);
  }
}

void StepTracer::synchronize_step(runtime::Interpreter& interpreter, runtime::BatchSource& batches,
                                  const runtime::UpdateSettings& settings, launch::RankContext& rank) {
  interpreter.synchronize();
  runtime::DeviceActivities activities(interpreter.memory().device(), interpreter.streams());
  // Beginning to record may wait for work of other GPUs of the process: none of it may be waiting for a message of this rank.
  comm::rendezvous_barrier(*rank.rendezvous, "trace of step " + std::to_string(settings.update), rank.rank, rank.size, timeout);
  parallel::TracedStep step;
  step.trace = interpreter.synchronize_traced_step(batches, settings);
  step.activities = activities.synchronize_take();
  no_activities_ = activities.why_missing();
  first_step_ = settings.update - step.trace.step;
  traced_.push_back(std::move(step));
}

void StepTracer::write(const std::filesystem::path& directory, const parallel::RankPlan& plan, launch::RankContext& rank,
                       const std::function<void(const std::string&)>& say) {
  const std::string device = to_string(rank.device) + " " + device_name(rank.device);
  parallel::TraceText own = trace_events(plan.train, plan.layout, plan.rank, device, traced_, first_step_, most_trace_bytes);
  traced_.clear();
  steps_.clear();
  const auto key = [](int of) { return "trace." + std::to_string(of); };
  if (!rank.is_main) {
    rank.rendezvous->set(key(rank.rank), own.events);
    return;
  }
  std::vector<std::string> events = {std::move(own.events)};
  for (int other = 1; other < rank.size; ++other) events.push_back(rank.rendezvous->get(key(other), timeout));
  const std::filesystem::path path = directory / "trace.json";
  write_text_file(path, parallel::trace_file(events));
  say(fmt::format("trace: {} (open it in https://ui.perfetto.dev)", path.string()));
  if (!no_activities_.empty()) say("trace: without the GPUs' own times of kernels: " + no_activities_);
  if (own.left_out > 0) say(fmt::format("trace: {} kernels and copies of rank 0 did not fit and were left out", own.left_out));
}

}  // namespace plait::train
