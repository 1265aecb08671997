#include "train/trainer.h"

#include <spdlog/fmt/fmt.h>

#include <atomic>

#include "core/error.h"
#include "core/message.h"
#include "core/terminal.h"
#include "launch/stop_signals.h"
#include "train/incarnation.h"
#include "train/job.h"
#include "train/run_messages.h"

namespace plait::train {
namespace {

// True if the run is complete. A job has one incarnation so far.
bool train_rank(const TrainRequest& request, const launch::StopSignals& signals, launch::RankContext& rank) {
  const Config& config = request.job.config;
  std::filesystem::path run_dir;
  {
    World world(config, signals, rank);
    Job job(request, world);
    Incarnation incarnation(job, world, job.start());
    if (incarnation.run() == Incarnation::End::stopped) {
      if (Reporter* reporter = job.reporter()) {
        reporter->progress().finish();
        reporter->progress().print(stopped_text(request, job.start(), incarnation.step(), world.stop.reason()));
      }
      return false;
    }
    run_dir = job.run_dir();
  }
  if (rank.is_main && config.train.sample_tokens > 0 && signals.wish() == launch::Stop::none)
    print_sample(config, run_dir, rank.device);
  return true;
}

}  // namespace

int train(const TrainRequest& request) {
  const launch::StopSignals signals;
  const launch::LaunchPlan plan = launch::plan_launch(request.job.config, request.joined);
  if (!plan.this_rank) {
    StatusLine(detect_terminal(stderr)).print_prose(plan.explanation);
    if (!plan.warning.empty()) message_to_stderr(plan.warning);
    if (signals.wish() != launch::Stop::none) {
      message_to_stderr(fmt::format("stopped by {} before the start, with nothing to keep; start again with: {}",
                                    launch::describe_signal(signals.signal()), command_line(request.argv)));
      return launch::stopped_status;
    }
  }
  std::atomic<bool> stopped = false;
  try {
    const int status = launch::launch(
        plan,
        [&](launch::RankContext& rank) {
          if (!train_rank(request, signals, rank)) stopped = true;
        },
        request.argv);
    return status == 0 && stopped ? launch::stopped_status : status;
  } catch (const launch::Interrupted&) {
    throw;
  } catch (const Error&) {
    if (signals.wish() != launch::Stop::at_once) throw;
    const bool launcher_says_it = plan.this_rank && plan.mode == LaunchMode::processes;
    throw launch::Interrupted(launcher_says_it ? "" : "ended at once by a second signal", signals.signal());
  }
}

}  // namespace plait::train
