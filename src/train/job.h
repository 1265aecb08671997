// A training job as one rank sees it: what stays when the plan, and all that is built from it (train/incarnation.h), goes.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/run_lock.h"
#include "comm/meeting.h"
#include "config/config.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "launch/rank_context.h"
#include "launch/stop_agreement.h"
#include "launch/stop_signals.h"
#include "train/report/progress.h"
#include "train/report/step_metrics.h"
#include "train/report/tensorboard_writer.h"
#include "train/run_start.h"
#include "train/trainer.h"

namespace plait::train {

// All ranks of one incarnation, and what they agree on. Keys of a rendezvous and a rank's life are used once, and ranks that
// stop together have passed the same boundaries: each incarnation has a world of its own.
struct World {
  World(const Config& config, const launch::StopSignals& signals, launch::RankContext& rank);

  launch::RankContext& rank;
  comm::Meeting meeting;  // of all ranks
  launch::StopAgreement stop;
};

// Everything a run shows and records.
class Reporter {
 public:
  // `done`: steps done before this start of the run.
  Reporter(const Config& config, std::int64_t done) : progress_(config.train.steps, done), log_(config.log) {}

  Progress& progress() { return progress_; }
  // Called when the step after `from` is next: until then the run directory stays as it was.
  void begin_records(const RunStart& from);
  void step(const StepMetrics& metrics);

 private:
  Progress progress_;
  const LogConfig& log_;
  std::optional<MetricsWriter> metrics_;
  std::optional<TensorBoardWriter> tensorboard_;
  nlohmann::ordered_json environment_;  // for the next line of metrics
};

class Job {
 public:
  // Collective: the ranks of `world` agree on the start (train/run_start.h) and read the tokenizer. ConfigError as there, and
  // if the sample that is due after the last step cannot be made. `request` outlives the job; `world` need not.
  Job(const TrainRequest& request, World& world);

  const TrainRequest& request() const { return request_; }
  const Config& config() const { return request_.job.config; }
  const parallel::Decision& decision() const { return request_.job.decision; }
  const data::Tokenizer& tokenizer() const { return *tokenizer_; }
  const RunStart& start() const { return start_; }  // of the first incarnation
  const std::filesystem::path& run_dir() const { return start_.run_dir; }

  // The data set. Opening it may take long, so that is left to the first incarnation, once its plan is known to fit. `vocab`:
  // the model's.
  std::shared_ptr<const data::Dataset> dataset(std::int64_t vocab);
  // Samples used by the run's steps up to `step`, which is not before start().
  std::int64_t samples_after(std::int64_t step) const;
  // The state of a checkpoint of `step`, except for what only an incarnation knows.
  nlohmann::ordered_json checkpoint_state(std::int64_t step, const std::vector<std::string>& kernel_choices) const;

  // Rank 0's; null on the others.
  Reporter* reporter() { return reporter_ ? &*reporter_ : nullptr; }
  // The rest does nothing on other ranks than 0. A lasting line:
  void say(const std::string& text);
  void say_origin();  // once: where the run's weights and steps come from
  // Called when the step after `from` is next: a new run keeps its directory, and records of later steps by an earlier start or
  // incarnation are removed. `plan`: the contents of plan.json.
  void take_over_run_directory(const RunStart& from, const nlohmann::ordered_json& plan);
  void require_directory_in_place() const;  // see RunLock::require_in_place()

 private:
  const TrainRequest& request_;
  std::optional<checkpoint::RunLock> lock_;
  RunOrigin origin_;  // rank 0
  RunStart start_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::shared_ptr<const data::Dataset> dataset_;
  std::optional<Reporter> reporter_;  // rank 0
};

}  // namespace plait::train
