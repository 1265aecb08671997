#include "verify/step_runner.h"

#include <utility>

#include "verify/bounds.h"

namespace plait::verify {

StepRunner::StepRunner(const launch::SettledJob& job, launch::RankContext& rank, const RankParts& parts, std::int64_t vocab,
                       std::shared_ptr<const data::Dataset> dataset)
    : StepRunner(job.config, rank, parts, std::move(dataset), parts.make_plan(job.config, job.decision, vocab, rank)) {}

StepRunner::StepRunner(const Config& config, launch::RankContext& rank, const RankParts& parts,
                       std::shared_ptr<const data::Dataset> dataset, parallel::RankPlan plan)
    : config_(config),
      host_memory_(rank.device),
      dataset_(std::move(dataset)),
      batches_(host_memory_, plan, dataset_, 1, config.verify.steps),
      session_(std::move(plan), parts.group_options(config, rank.device), rank) {
  config_.train.optimizer = verify_optimizer(config);
  interpreter().initialize(config.run.seed);
  interpreter().synchronize_warm_up();
}

void StepRunner::synchronize_observe(std::int64_t step, const runtime::Interpreter::StepObserver& observe) {
  observed_.emplace(host_memory_, plan(), dataset_, step, step);
  interpreter().synchronize_step(*observed_, observe);
}

runtime::StepResult StepRunner::synchronize_step() {
  ++step_;
  interpreter().run_step(batches_, train::update_settings(config_, step_, config_.verify.lr));
  const runtime::StepResult result = interpreter().synchronize_result();
  interpreter().synchronize();
  return result;
}

}  // namespace plait::verify
