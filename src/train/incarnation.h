// The part of a training job that a plan makes, and that goes with it: communicators and programs of a rank, its state on the
// device, and the steps from where the job stands. A job may have one incarnation after the other in a process.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/device.h"
#include "data/dataset.h"
#include "parallel/ledger.h"
#include "train/batch_sources.h"
#include "train/job.h"
#include "train/learning_rate.h"
#include "train/plan_report.h"
#include "train/run_start.h"
#include "train/session.h"

namespace plait::train {

class Incarnation {
 public:
  // Why the steps came to an end; a failure is an exception.
  enum class End { finished, stopped };

  // Collective over `world`, which serves no other incarnation. Makes the session, and loads weights and moments or initialises
  // them. `from`: in the run's directory and not before job.start(). Job and world outlive the incarnation.
  Incarnation(Job& job, World& world, RunStart from);

  // Collective; once. Takes the steps up to the last one, or up to the boundary at which the world stops. The step of either
  // end is saved.
  End run();

  std::int64_t step() const { return step_; }  // the last one enqueued; after run(), all of them are done

 private:
  using Clock = std::chrono::steady_clock;

  const parallel::RankPlan& plan() const { return session_.plan(); }
  bool is_last(std::int64_t step) const { return step >= config_.train.steps; }

  void load();
  void compare_samples(const checkpoint::CheckpointReader& checkpoint);
  void adopt_choices(const checkpoint::CheckpointReader& checkpoint);

  End take_steps();
  int steps_ahead() const;
  bool after_step(const TrainingBatches& batches);
  void take_results(int most);
  void take(const runtime::StepResult& result);
  StepMetrics metrics(const TrainingBatches& batches, double milliseconds, std::optional<double> validation_loss) const;
  void checkpoint();
  [[noreturn]] void stop_at_non_finite(const runtime::StepResult& result);
  std::string kept() const;

  Job& job_;
  const Config& config_;
  World& world_;
  const RunStart from_;
  Session session_;
  std::shared_ptr<const data::Dataset> dataset_;
  LearningRate learning_rate_;
  DeviceMemory host_memory_;  // pinned batches; separate from the session's, so that its counters describe the arena
  std::optional<PlanReport> plan_report_;
  std::optional<double> peak_flops_;  // rank 0
  std::optional<ValidationBatches> validation_;
  std::int64_t step_;
  bool saves_ = false;  // it has made a checkpoint

  runtime::StepResult latest_;
  parallel::LedgerSum run_ledger_;          // all steps but the first, which includes start-up
  std::int64_t steps_without_targets_ = 0;  // since the last report
  // Since the window began:
  parallel::LedgerSum window_ledger_;
  double stalled_before_ = 0;  // until then: time waiting for batches
  Clock::time_point window_start_;
};

}  // namespace plait::train
