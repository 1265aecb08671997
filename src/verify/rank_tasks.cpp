#include "verify/rank_tasks.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <utility>

#include "comm/meeting.h"
#include "core/error.h"
#include "core/format.h"
#include "data/tokenizer.h"
#include "train/batch_file.h"
#include "verify/bounds.h"
#include "verify/divergence_search.h"
#include "verify/parameter_errors.h"
#include "verify/reference.h"
#include "verify/step_runner.h"

namespace plait::verify {
namespace {

void record(StepRunner& runner, const VerifyJob& job, const VerifyBounds& bounds) {
  const bool all = job.task == VerifyJob::Task::record_tensors;
  const std::int64_t steps = std::ssize(bounds.rates);
  ReferenceRecorder recorder(runner.interpreter(), bounds);
  bool any_counts = false;  // among the targets so far
  for (std::int64_t step = 1; step <= steps; ++step) {
    if (all) {
      runner.synchronize_observe(step, [&](const parallel::Instruction& i, const std::vector<runtime::WrittenTensor>& written) {
        for (const runtime::WrittenTensor& tensor : written) {
          if (tensor.view) recorder.add(reference_tensor(i.micro_batch, tensor), tensor.view);
        }
      });
    }
    const runtime::StepResult result = runner.synchronize_step();
    if (result.halted)
      throw Error(fmt::format("step {} itself is not finite; nothing can be compared with it{}", step,
                              step > 1 ? ": a smaller verify.lr makes smaller steps before it" : ""));
    const bool counts = result.loss_tokens > 0, first_to_count = counts && !any_counts;
    any_counts |= counts;
    counts ? recorder.count_update(step) : recorder.count_no_update();
    if (all || first_to_count) recorder.add_gradients();
    if (all || step == steps) recorder.add_parameters();
    recorder.write(serial_run(job), result);
  }
  if (!any_counts)
    throw Error(
        fmt::format("no target counts in {}: nothing can be compared; take a larger train.global_batch or "
                    "data.sequence_length, more verify.steps, another run.seed, or data.tokenizer: random",
                    plural(steps, "step")));
}

void add(ErrorSummary& summary, const std::vector<ParameterError>& errors, const parallel::RankPlan& plan) {
  for (const ParameterError& e : errors) {
    summary.add(e.error, e.bound, fmt::format("{} on rank {}", plan.parameters[e.parameter].name, plan.rank));
    summary.largest = std::max(summary.largest, e.largest);
  }
}

VerifyFindings compare(StepRunner& runner, const VerifyJob& job, const VerifyBounds& bounds) {
  VerifyFindings findings;
  const std::int64_t steps = std::ssize(bounds.rates);
  parallel::LedgerSum ledger;
  bool any_counts = false;  // among the targets so far
  for (std::int64_t step = 1; step <= steps; ++step) {
    const runtime::StepResult result = runner.synchronize_step();
    if (step > 1 || steps == 1) ledger.add(result.ledger);
    const ReferenceStep serial(serial_run(job), step);
    const std::string where = fmt::format("step {} on rank {}", step, runner.plan().rank);
    const double loss = static_cast<double>(result.loss), norm = static_cast<double>(result.grad_norm);
    findings.of(ErrorKind::loss).add(relative_difference(loss, serial.loss()), bounds.loss(serial.figures()), where);
    findings.of(ErrorKind::norm).add(relative_difference(norm, serial.norm()), bounds.norm(serial.figures()), where);
    if (serial.loss_tokens() > 0 && !std::exchange(any_counts, true))
      add(findings.of(ErrorKind::gradient), gradient_errors(runner.interpreter(), serial, bounds), runner.plan());
    if (step == steps) {
      add(findings.of(ErrorKind::parameter), parameter_errors(runner.interpreter(), serial, bounds), runner.plan());
      add(findings.of(ErrorKind::weight), weight_errors(runner.interpreter(), serial, bounds), runner.plan());
    }
  }
  findings.ledgers = {ledger.mean()};
  return findings;
}

// The findings of all ranks, on rank 0.
std::optional<VerifyFindings> collect(const VerifyFindings& own, const Config& config, launch::RankContext& rank) {
  comm::Meeting meeting = rank.meeting("verify", train::group_options(config, rank.device).timeout);
  const std::vector<VerifyFindings> findings = meeting.gather_on(0, "findings", own);
  if (!rank.is_main) return std::nullopt;
  VerifyFindings all = own;
  for (std::size_t other = 1; other < findings.size(); ++other) all.merge(findings[other]);
  return all;
}

}  // namespace

std::optional<VerifyFindings> run_rank_task(const VerifyJob& job, const Config& config, const RankParts& parts,
                                            launch::RankContext& rank) {
  const std::unique_ptr<data::Tokenizer> tokenizer = data::load_tokenizer(job.model);
  StepRunner runner(config, rank, parts, tokenizer->vocab(), train::open_batches(recorded_batches(job), config));
  const VerifyBounds bounds = verify_bounds(runner.plan(), config);
  return runner.session().run([&] {
    VerifyFindings findings;
    switch (job.task) {
      case VerifyJob::Task::record:
      case VerifyJob::Task::record_tensors: record(runner, job, bounds); break;
      case VerifyJob::Task::compare: findings = compare(runner, job, bounds); break;
      case VerifyJob::Task::search:
        findings.first_divergence = DivergenceSearch(runner, serial_run(job), bounds).synchronize_run();
        break;
    }
    return collect(findings, config, rank);
  });
}

}  // namespace plait::verify
