#include "train/incarnation.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/weights_reader.h"
#include "core/error.h"
#include "core/format.h"
#include "interop/foreign_weights.h"
#include "model/model_flops.h"
#include "runtime/written_tensors.h"
#include "train/report/source_report.h"
#include "train/run_messages.h"
#include "train/sample_record.h"
#include "train/trace/step_tracer.h"
#include "train/training_checkpoint.h"

namespace plait::train {
namespace {

// The first tensor of a rank that is not finite, if it has one.
struct BadTensor {
  std::int64_t order = -1;  // position in the order of execution; -1: a weight, before it
  std::string where;        // empty: all are finite
};

void declare(auto& field, Of<BadTensor> auto& bad) {
  field("order", bad.order, record::whole(-1));
  field("where", bad.where);
}

}  // namespace

Incarnation::Incarnation(Job& job, World& world, RunStart from)
    : job_(job),
      config_(job.config()),
      world_(world),
      from_(std::move(from)),
      session_(config_, job.decision(), job.tokenizer().vocab(), world.rank),
      learning_rate_(config_.train.optimizer, config_.train.steps),
      host_memory_(world.rank.device),
      step_(from_.step) {
  const auto busy = world_.meeting.busy();
  dataset_ = job_.dataset(plan().sizes.shape.vocab);
  if (world_.rank.is_main) peak_flops_ = peak_flops(config_, plan(), world_.rank.device);
  plan_report_.emplace(job_, world_, session_);
  if (!is_last(step_) && world_.rank.is_main) {
    job_.say(data_summary(*dataset_, job_.tokenizer(), config_.train, {step_, from_.samples}));
    if (const std::string trained = data::trained_validation_warning(config_.data); !trained.empty()) job_.say(trained);
  }
  if (!from_.continues()) session_.interpreter().initialize(config_.run.seed);
  if (!from_.checkpoint.empty()) load();
  job_.say_origin();
  if (const std::string lost = work_at_risk(config_, from_); !lost.empty()) job_.say(lost);
}

void Incarnation::load() {
  const std::unique_ptr<checkpoint::WeightsReader> weights = interop::open_weights(from_.checkpoint);
  if (weights->digest() != from_.digest) {
    throw ConfigError(
        fmt::format("{}: holds other weights here than on rank 0: copies of them have to be the same, times of "
                    "last change included (cp -p, rsync -t)",
                    from_.checkpoint.string()));
  }
  verify_copies(*weights, world_.meeting);
  std::optional<checkpoint::CheckpointReader> before;
  if (from_.continues()) compare_samples(before.emplace(from_.checkpoint));
  synchronize_load(session_.interpreter(), *weights, from_.restored);
  if (before) adopt_choices(*before);
  world_.meeting.meet("loaded");
}

// A resumed run goes on with the next samples; a fork may go on with others, and says so.
void Incarnation::compare_samples(const checkpoint::CheckpointReader& checkpoint) {
  if (!has_sample_record(checkpoint)) return;  // reported already (train/run_start.h)
  std::vector<ConfigProblem> differences = order_differences(checkpoint, *dataset_);
  if (differences.empty()) return;
  if (!from_.resumed) {
    for (const ConfigProblem& found : differences)
      job_.say(fmt::format("the order of samples is another one: {} is {}, it {}", found.path, found.value, found.rule));
    return;
  }
  differences.back().rule += "; a new run may go on with other samples: " + command_to_fork(from_.checkpoint);
  throw ConfigError(std::move(differences));
}

// Adopts the kernels that the earlier steps were computed with, so that the next ones have the same bits.
void Incarnation::adopt_choices(const checkpoint::CheckpointReader& checkpoint) {
  const auto choices = kernel_choices(checkpoint);
  const int unusable = session_.interpreter().context().adopt_choices(choices);
  if (unusable == 0) return;
  job_.say(
      fmt::format("{} of the {} kernel choices in {} do not fit this device or library version: those kernels are chosen "
                  "anew and results may differ in the last bits",
                  unusable, choices.size(), from_.checkpoint.string()));
}

Incarnation::End Incarnation::run() {
  return session_.run([this] { return take_steps(); });
}

Incarnation::End Incarnation::take_steps() {
  runtime::Interpreter& interpreter = session_.interpreter();
  const std::int64_t first = step_ + 1, last = config_.train.steps;
  if (is_last(step_)) {
    job_.say(fmt::format("nothing to do: the checkpoint is of step {} and train.steps={}", step_, last));
    return End::finished;
  }
  if (world_.stop.stop_here()) return End::stopped;
  TrainingBatches batches(host_memory_, plan(), dataset_, first, last);
  if (dataset_->validation_tokens() > 0) validation_.emplace(host_memory_, plan(), dataset_, config_.train.eval_batches);
  StepTracer tracer(config_.log.trace_steps, first, last);
  for (const std::int64_t step : config_.log.trace_steps) {
    if (step > last)
      job_.say(fmt::format("log.trace_steps: step {} is not traced, the run ends with train.steps={}", step, last));
  }
  interpreter.synchronize_warm_up();
  if (world_.stop.stop_here()) return End::stopped;
  job_.take_over_run_directory(from_, plan_report_->document());
  bool told_of_launch = interpreter.launch_is_settled();
  if (const std::string launch = interpreter.launch_text(); !launch.empty()) job_.say(launch);
  window_start_ = Clock::now();
  while (!is_last(step_)) {
    ++step_;
    const runtime::UpdateSettings settings = update_settings(config_, step_, learning_rate_.at(step_ - 1));
    if (tracer.wants(step_)) {
      take_results(0);
      tracer.synchronize_step(interpreter, batches, settings, world_.meeting);
    } else {
      interpreter.run_step(batches, settings);
    }
    if (!std::exchange(told_of_launch, interpreter.launch_is_settled()) && told_of_launch) job_.say(interpreter.launch_text());
    while (const auto result = interpreter.next_result()) take(*result);
    if (tracer.is_full()) {
      const auto before = Clock::now();
      tracer.write(job_.run_dir(), plan(), world_.rank, world_.meeting, [this](const std::string& text) { job_.say(text); });
      window_start_ += Clock::now() - before;
    }
    if (Reporter* reporter = job_.reporter()) reporter->progress().advance(step_);
    if (after_step(batches) && !is_last(step_)) return End::stopped;
  }
  world_.stop.leave();
  if (Reporter* reporter = job_.reporter()) reporter->progress().finish();
  plan_report_->say_measured(run_ledger_);
  const std::string uses = source_report(dataset_->sources_used(job_.samples_after(step_)), dataset_->sequence_length());
  if (!uses.empty()) job_.say(uses);
  job_.say(session_.memory_report().to_string(world_.rank.rank));
  job_.say("run directory: " + job_.run_dir().string());
  return End::finished;
}

// The number of steps that may be enqueued. They still run before a run can stop, so at most about 50 ms of them, and at
// least two, so that the device has the next one when it finishes one.
int Incarnation::steps_ahead() const {
  if (latest_.device_ms <= 0) return runtime::Interpreter::results_in_flight;
  return static_cast<int>(std::clamp(50.0f / latest_.device_ms, 2.0f, float{runtime::Interpreter::results_in_flight}));
}

// True if the run is to stop; then the step is saved.
bool Incarnation::after_step(const TrainingBatches& batches) {
  const bool first = step_ == from_.step + 1, last = is_last(step_);
  const auto every = [this](std::int64_t n) { return n > 0 && step_ % n == 0; };
  const bool evaluate = (every(config_.train.eval_every) || last) && dataset_->validation_tokens() > 0;
  const bool save = is_saved(config_, step_);
  // The first step includes start-up; it is reported separately so that it does not distort the next window's speed.
  const bool report = first || last || every(config_.log.every) || evaluate;
  bool saved = false;
  const auto save_once = [&] {
    if (!std::exchange(saved, true)) checkpoint();
  };
  // Room for the next step is made before asking whether to stop, because enqueued steps run in any case.
  take_results(report || save ? 0 : steps_ahead() - 1);
  bool stop = world_.stop.stop_here();
  if (stop) take_results(0);
  if (stop && last) save_once();  // the evaluation may take longer than the sender of the signal waits
  if (report) {
    const double milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - window_start_).count();
    std::optional<runtime::EvaluationLoss> evaluated;
    if (evaluate && (last || !stop)) {
      validation_->rewind();
      evaluated = session_.interpreter().synchronize_evaluation(*validation_, static_cast<int>(validation_->rounds()),
                                                                [&] { return !last && (stop = world_.stop.stop_here()); });
    }
    std::optional<double> loss;
    if (evaluated && evaluated->loss_tokens > 0) loss = evaluated->loss;
    if (Reporter* reporter = job_.reporter()) reporter->step(metrics(batches, milliseconds, loss));
    if (const std::int64_t steps = std::exchange(steps_without_targets_, 0); steps > 0) {
      job_.say(fmt::format("nothing was learned in {} of the steps up to {}: none of their targets counts (data.chat_template)",
                           steps, step_));
    }
    if (evaluate && !evaluated)
      job_.say(fmt::format("the evaluation after step {} was left out, as the run is to stop", step_));
    if (evaluated && !loss) job_.say("no validation loss: no target of the validation samples counts");
    if (loss && !std::isfinite(*loss)) {  // before the checkpoint: the next step, which would halt, may not come
      world_.meeting.meet("ruined");      // rank 0's record of the step is written before any rank ends the job
      throw Error(fmt::format("step {}: validation loss {}: the weights that it made compute nothing finite; {}", step_,
                              unsigned_nan(*loss), kept()));
    }
  }
  if (save || stop) save_once();
  if (!stop && !last && (report || save)) {  // the device has done the step meanwhile
    stop = world_.stop.stop_here();
    if (stop) save_once();
  }
  if (report || save) {
    window_start_ = Clock::now();
    window_ledger_ = {};
    stalled_before_ = batches.stalled_ms();
  }
  return stop;
}

// Waits for results until at most `most` are pending.
void Incarnation::take_results(int most) {
  runtime::Interpreter& interpreter = session_.interpreter();
  while (interpreter.pending_results() > most) take(interpreter.synchronize_result());
}

void Incarnation::take(const runtime::StepResult& result) {
  if (result.halted) stop_at_non_finite(result);
  latest_ = result;
  if (result.loss_tokens == 0) ++steps_without_targets_;
  window_ledger_.add(result.ledger);
  if (result.update > from_.step + 1) run_ledger_.add(result.ledger);
}

// The metrics of the latest step; `milliseconds` is how long the window took, all steps of which are done.
StepMetrics Incarnation::metrics(const TrainingBatches& batches, double milliseconds,
                                 std::optional<double> validation_loss) const {
  const auto steps = static_cast<double>(window_ledger_.steps());
  const model::FlopTerms terms = model::flop_terms(plan().sizes.shape, plan().sequence_length);
  const double flops_per_token = model::model_flops_per_token(terms);
  const int ranks = world_.rank.size;
  const std::int64_t samples = job_.samples_after(latest_.update);
  const parallel::Ledger ledger = window_ledger_.mean();
  StepMetrics m;
  m.step = latest_.update;
  m.loss = static_cast<double>(latest_.loss);
  m.loss_tokens = latest_.loss_tokens;
  m.learning_rate = learning_rate_.at(latest_.update - 1);
  m.grad_norm = static_cast<double>(latest_.grad_norm);
  m.step_ms = milliseconds / steps;
  m.tokens_per_second = static_cast<double>(plan().tokens_per_step()) / (m.step_ms / 1e3);
  m.data_stalled_ms = (batches.stalled_ms() - stalled_before_) / steps;
  m.exposed_comm_ms = ledger.exposed_ms();
  if (ranks > 1) m.ledger = ledger;
  m.tflops_per_gpu = m.tokens_per_second * flops_per_token / static_cast<double>(ranks) / 1e12;
  if (peak_flops_) m.mfu = model::model_flops_utilization(flops_per_token, m.tokens_per_second, ranks, *peak_flops_);
  m.peak_bytes = static_cast<std::int64_t>(session_.memory_report().allocated_bytes);
  m.validation_loss = validation_loss;
  m.tokens = samples * dataset_->sequence_length();
  for (const data::SourceUse& use : dataset_->sources_used(samples)) m.epochs.push_back(use.epochs());
  return m;
}

// The time depends on the disk and may exceed the limit of any collective.
void Incarnation::checkpoint() {
  const auto busy = world_.meeting.busy();
  runtime::Interpreter& interpreter = session_.interpreter();
  job_.require_directory_in_place();
  const auto committed = synchronize_save(
      interpreter, job_.run_dir(), step_, job_.checkpoint_state(step_, interpreter.context().choices()),
      config_.checkpoint.keep, [this](const std::string& name) { world_.meeting.meet(name); }, *world_.rank.life);
  saves_ = true;
  if (!committed) return;
  job_.say("checkpoint: " + committed->directory.string());
  for (const std::string& problem : committed->prune_problems) job_.say("warning: " + problem);
}

// Every rank looks for its own first bad tensor; all of them stop with the earliest.
void Incarnation::stop_at_non_finite(const runtime::StepResult& result) {
  const auto busy = world_.meeting.busy();
  runtime::Interpreter& interpreter = session_.interpreter();
  interpreter.synchronize();
  TrainingBatches again(host_memory_, plan(), dataset_, result.update, result.update);
  const std::string topic = "non_finite/" + std::to_string(result.update);
  world_.meeting.meet(
      topic + "/again");  // pinned memory is there on all ranks before work of one waits for another's (synchronize_warm_up)
  const std::optional<runtime::NonFinite> found = runtime::synchronize_find_non_finite(interpreter, again);
  const std::vector<BadTensor> all = world_.meeting.gather(topic, found ? BadTensor{found->order, found->where} : BadTensor{});
  std::string where;
  std::int64_t earliest = 0;
  for (int r = 0; r < world_.rank.size; ++r) {
    const BadTensor& bad = all[static_cast<std::size_t>(r)];
    if (bad.where.empty() || (!where.empty() && bad.order >= earliest)) continue;
    earliest = bad.order;
    where = fmt::format("first not finite on rank {}: {}", r, bad.where);
  }
  if (where.empty()) where = "every tensor of every rank is finite: their sum over ranks or squares overflowed";
  world_.meeting.meet(topic + "/told");
  throw Error(fmt::format("step {}: loss {}, gradient norm {}; {}. Weights were left as they were before this step; {}",
                          result.update, unsigned_nan(result.loss), unsigned_nan(result.grad_norm), where, kept()));
}

// Says what a failed run can continue from.
std::string Incarnation::kept() const {
  return saves_ || from_.resumed ? "the last checkpoint is in " + checkpoint::checkpoints_directory(job_.run_dir()).string()
                                 : "this run has no checkpoint yet";
}

}  // namespace plait::train
