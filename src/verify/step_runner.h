// One rank of a job under verification: takes optimizer steps as training does, and can show a step's tensors before taking it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "data/dataset.h"
#include "launch/launch.h"
#include "launch/settled_job.h"
#include "parallel/rank_plan.h"
#include "runtime/rank_groups.h"
#include "train/batch_sources.h"
#include "train/session.h"

namespace plait::verify {

// The replaceable parts of a rank in a job under verification. The defaults are those of training. Verification compares any
// other parts with the serial run, which has the same samples and otherwise the defaults.
struct RankParts {
  std::function<parallel::RankPlan(const Config&, const parallel::Decision&, std::int64_t vocab, const launch::RankContext&)>
      make_plan = train::training_plan;
  std::function<runtime::GroupOptions(const Config&, Device)> group_options = train::group_options;
  // Called once for each model, for the serial run, by the process that starts its ranks.
  std::function<std::shared_ptr<const data::Dataset>(const Config&, const data::Tokenizer&, std::int64_t vocab)> open_dataset =
      [](const Config& config, const data::Tokenizer& tokenizer, std::int64_t vocab) {
        return data::open_dataset(config, tokenizer, vocab);
      };
};

class StepRunner {
 public:
  // Collective over all ranks of the job, like every other function here. Weights are drawn from the seed. `vocab`: of the
  // tokenizer.
  StepRunner(const launch::SettledJob& job, launch::RankContext& rank, const RankParts& parts, std::int64_t vocab,
             std::shared_ptr<const data::Dataset> dataset);

  train::Session& session() { return session_; }
  runtime::Interpreter& interpreter() { return session_.interpreter(); }
  const parallel::RankPlan& plan() const { return session_.plan(); }

  // Forward and backward of step `step` (from 1), without reductions and update: parallel::Interpreter::synchronize_step.
  void synchronize_observe(std::int64_t step, const runtime::Interpreter::StepObserver& observe);
  // Takes the next step and waits for its end.
  runtime::StepResult synchronize_step();

 private:
  StepRunner(const Config& config, launch::RankContext& rank, const RankParts& parts,
             std::shared_ptr<const data::Dataset> dataset, parallel::RankPlan plan);

  Config config_;  // with verify_optimizer()
  DeviceMemory host_memory_;
  std::shared_ptr<const data::Dataset> dataset_;
  train::TrainingBatches batches_;
  std::optional<train::TrainingBatches> observed_;
  std::int64_t step_ = 0;   // the last one taken
  train::Session session_;  // after the batches, so that its streams finish with them first, also if a rank fails
};

}  // namespace plait::verify
