#include "verify/verify_job.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "checkpoint/run_directory.h"
#include "comm/meeting.h"
#include "core/error.h"
#include "core/file.h"
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

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::uint64_t largest_file = std::uint64_t{64} << 20;
const std::string failure_prefix = "failure-";

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

// Runs job.task. Collective over all ranks; returns the findings of all of them on rank 0.
std::optional<VerifyFindings> run_rank_task(const VerifyJob& job, const launch::SettledJob& settled, const RankParts& parts,
                                            launch::RankContext& rank) {
  const Config& config = settled.config;
  const std::unique_ptr<data::Tokenizer> tokenizer = data::load_tokenizer(job.model);
  StepRunner runner(settled, rank, parts, tokenizer->vocab(), train::open_batches(recorded_batches(job), config));
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

fs::path findings_path(const VerifyJob& job) { return job.result / "findings.json"; }

// The reason why a rank ended, kept in a file: a process has no other way to report it.
struct RunFailure {
  int rank = 0;
  bool config = false;       // a ConfigError
  bool consequence = false;  // a CommError: usually caused by another rank's failure
  std::string message;
};

void declare(auto& field, Of<RunFailure> auto& failure) {
  field("rank", failure.rank);
  field("config", failure.config);
  field("consequence", failure.consequence);
  field("message", failure.message, any_words);
}

void write_failure(const VerifyJob& job, int rank, const std::exception& error) {
  const Json json = RunFailure{rank, dynamic_cast<const ConfigError*>(&error) != nullptr,
                               dynamic_cast<const CommError*>(&error) != nullptr, error.what()};
  write_text_file(job.result / (failure_prefix + std::to_string(rank)),
                  json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// The likeliest cause among all ranks.
std::optional<RunFailure> read_failure(const VerifyJob& job) {
  std::optional<RunFailure> cause;
  for (const fs::path& path : list_directory(job.result)) {
    if (!path.filename().string().starts_with(failure_prefix) || path.extension() == ".tmp") continue;
    const auto failure = Json::parse(read_text(path, largest_file)).get<RunFailure>();
    const auto place = [](const RunFailure& f) { return std::pair(f.consequence, f.rank); };
    if (!cause || place(failure) < place(*cause)) cause = failure;
  }
  return cause;
}

// The work of every rank; rank 0 stores the findings of all.
void run_rank(const VerifyJob& job, const launch::SettledJob& settled, const RankParts& parts, launch::RankContext& rank) {
  try {
    const auto findings = run_rank_task(job, settled, parts, rank);
    if (findings) write_text_file(findings_path(job), Json(*findings).dump());
  } catch (const std::exception& error) {
    write_failure(job, rank.rank, error);
    throw;
  }
}

// The batches for the serial run, and then for every layout.
void record_batches(const VerifyJob& job, const Config& config, const RankParts& parts) {
  if (fs::exists(recorded_batches(job))) return;
  const auto tokenizer = data::load_tokenizer(job.model);
  const auto dataset = parts.open_dataset(config, *tokenizer, std::max(config.model.vocab.value_or(0), tokenizer->vocab()));
  train::write_batches(recorded_batches(job), *dataset, config, config.verify.steps);
}

}  // namespace

fs::path recorded_batches(const VerifyJob& job) { return job.model / "batches.safetensors"; }

fs::path serial_run(const VerifyJob& job) {
  const bool tensors = job.task == VerifyJob::Task::record_tensors || job.task == VerifyJob::Task::search;
  return job.model / (tensors ? "tensors" : "steps");
}

std::string to_text(const VerifyJob& job) {
  return Json{{"task", static_cast<int>(job.task)}, {"model", job.model.string()}, {"result", job.result.string()}}.dump();
}

VerifyJob verify_job_from(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    return {static_cast<VerifyJob::Task>(json.at("task").get<int>()), json.at("model").get<std::string>(),
            json.at("result").get<std::string>()};
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError(std::string("--job is for rank processes that verify starts itself: ") + error.what());
  }
}

VerifyFindings run_verify_job(const VerifyJob& job, const launch::SettledJob& settled, const RankParts& parts,
                              const std::vector<std::string>& argv) {
  const Config& config = settled.config;
  std::vector<std::string> rank_argv = argv;
  rank_argv.insert(rank_argv.end(), {"--job", to_text(job)});
  std::string why = "a rank failed without saying why";
  const bool is_serial = job.task == VerifyJob::Task::record || job.task == VerifyJob::Task::record_tensors;
  if (is_serial) record_batches(job, config, parts);
  const launch::PassedJob passed(settled);
  try {
    const int status = launch::launch(
        launch::plan_launch(config), [&](launch::RankContext& rank) { run_rank(job, settled, parts, rank); }, rank_argv);
    if (status == 0) return Json::parse(read_text(findings_path(job), largest_file)).get<VerifyFindings>();
  } catch (const launch::Interrupted&) {
    throw;
  } catch (const Error& error) {
    why = error.what();
  }
  const std::optional<RunFailure> failure = read_failure(job);
  if (!failure) throw Error(why);
  const std::string message = "rank " + std::to_string(failure->rank) + ": " + failure->message;
  if (failure->config) throw ConfigError(message);
  throw Error(message);
}

int run_verify_rank(const VerifyJob& job) {
  const launch::BegunJob begun = launch::begin_job(
      []() -> parallel::DecidedConfig { throw ConfigError("--job is for rank processes that verify starts itself"); });
  const launch::LaunchPlan plan = launch::plan_launch(begun.job.config, begun.rendezvous);
  require(plan.this_rank.has_value(), "run_verify_rank: this process is not a rank");
  try {
    return launch::launch(plan, [&](launch::RankContext& rank) { run_rank(job, begun.job, {}, rank); }, {});
  } catch (const Error&) {
    return 3;  // the launcher tells the others, and its file has the reason
  }
}

}  // namespace plait::verify
