#include "train/trainer.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/run_lock.h"
#include "checkpoint/weights_reader.h"
#include "comm/meeting.h"
#include "core/error.h"
#include "core/file.h"
#include "core/format.h"
#include "core/message.h"
#include "core/terminal.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "interop/foreign_weights.h"
#include "launch/stop_agreement.h"
#include "launch/stop_signals.h"
#include "model/model_flops.h"
#include "parallel/job_plan.h"
#include "parallel/ledger_json.h"
#include "parallel/plan_json.h"
#include "parallel/proof/validator.h"
#include "runtime/non_finite.h"
#include "site/devices.h"
#include "train/batch_sources.h"
#include "train/command_to_go_on.h"
#include "train/learning_rate.h"
#include "train/report/accuracy.h"
#include "train/report/collective_report.h"
#include "train/report/environment.h"
#include "train/report/link_table.h"
#include "train/report/metrics_writer.h"
#include "train/report/path_table.h"
#include "train/report/progress.h"
#include "train/report/source_report.h"
#include "train/report/tensorboard_writer.h"
#include "train/run_messages.h"
#include "train/run_start.h"
#include "train/sample_record.h"
#include "train/session.h"
#include "train/trace/step_tracer.h"
#include "train/training_checkpoint.h"

namespace plait::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// The first tensor of a rank that is not finite, if it has one.
struct BadTensor {
  std::int64_t order = -1;  // position in the order of execution; -1: a weight, before it
  std::string where;        // empty: all are finite
};

void declare(auto& field, Of<BadTensor> auto& bad) {
  field("order", bad.order, record::whole(-1));
  field("where", bad.where);
}

// Everything a run shows and records; rank 0 only.
class Reporter {
 public:
  Reporter(const Config& config, const RunStart& start, const parallel::RankPlan& plan, Device device)
      : progress_(config.train.steps, start.step),
        has_tensorboard_(config.log.tensorboard),
        tokens_per_step_(static_cast<double>(plan.tokens_per_step())),
        flops_per_token_(model::model_flops_per_token(model::flop_terms(plan.sizes.shape, plan.sizes.micro_batch.sequence))),
        ranks_(plan.layout.ranks()),
        peak_flops_(train::peak_flops(config, plan, device)) {}

  Progress& progress() { return progress_; }

  // Called before the first step: until then the run directory stays as it was.
  void begin_records(const RunStart& start) {
    metrics_.emplace(start.run_dir / "metrics.jsonl", start.resumed ? std::optional(start.step) : std::nullopt);
    write_text_file(start.run_dir / "environment.json", environment_.dump(2) + "\n");
    if (has_tensorboard_) tensorboard_.emplace(start.run_dir, start.step);
  }

  // `milliseconds` and `data_stalled_ms` are means over the steps since the last report.
  void step(const runtime::StepResult& result, double lr, double milliseconds, const parallel::Ledger& ledger,
            double data_stalled_ms, std::size_t peak_bytes, std::optional<double> validation_loss, const data::Dataset& dataset,
            std::int64_t samples) {
    StepMetrics m;
    m.step = result.update;
    m.loss = static_cast<double>(result.loss);
    m.loss_tokens = result.loss_tokens;
    m.learning_rate = lr;
    m.grad_norm = static_cast<double>(result.grad_norm);
    m.step_ms = milliseconds;
    m.tokens_per_second = tokens_per_step_ / (milliseconds / 1e3);
    m.data_stalled_ms = data_stalled_ms;
    m.exposed_comm_ms = ledger.exposed_ms();
    if (ranks_ > 1) m.ledger = ledger;
    m.tflops_per_gpu = m.tokens_per_second * flops_per_token_ / static_cast<double>(ranks_) / 1e12;
    if (peak_flops_) m.mfu = model::model_flops_utilization(flops_per_token_, m.tokens_per_second, ranks_, *peak_flops_);
    m.peak_bytes = static_cast<std::int64_t>(peak_bytes);
    m.validation_loss = validation_loss;
    m.tokens = samples * dataset.sequence_length();
    for (const data::SourceUse& use : dataset.sources_used(samples)) m.epochs.push_back(use.epochs());
    auto line = to_json(m);
    if (tensorboard_) tensorboard_->scalars(line);
    if (!environment_.is_null()) line["environment"] = std::exchange(environment_, nullptr);
    metrics_->write(line);
    progress_.report(m);
    if (validation_loss) progress_.validation(m.step, *validation_loss);
  }

 private:
  Progress progress_;
  bool has_tensorboard_;
  std::optional<MetricsWriter> metrics_;
  std::optional<TensorBoardWriter> tensorboard_;
  nlohmann::ordered_json environment_ = to_json(environment_here());  // for the first line
  double tokens_per_step_, flops_per_token_;
  int ranks_;
  std::optional<double> peak_flops_;
};

class Trainer {
 public:
  Trainer(const TrainRequest& request, const launch::StopSignals& signals, launch::RankContext& rank)
      : request_(request),
        config_(request.job.config),
        decision_(request.job.plan),
        rank_(rank),
        meeting_(rank.meeting("run", group_options(config_, rank.device).timeout)),
        stop_(signals, rank, meeting_.timeout()),
        start_(agree_on_start(config_, request.resume, meeting_, lock_, origin_)),
        tokenizer_(load_tokenizer()),
        session_(config_, tokenizer_->vocab(), rank),
        dataset_(open_dataset()),
        learning_rate_(config_.train.optimizer, config_.train.steps),
        host_memory_(rank.device) {
    require(lock_.has_value(), "each rank has its part of the lock on the run's directory");
    const auto busy = meeting_.busy();
    if (rank_.is_main) reporter_.emplace(config_, start_, session_.plan(), rank_.device);
    tell_plan();
    if (start_.step < config_.train.steps && rank_.is_main) {
      say(data_summary(*dataset_, *tokenizer_, config_.train, {start_.step, start_.samples}));
      if (const std::string trained = data::trained_validation_warning(config_.data); !trained.empty()) say(trained);
    }
    load_or_initialize();
    if (const std::string lost = work_at_risk(config_, start_); !lost.empty()) say(lost);
  }

  // True if the run is complete, false if it was stopped.
  bool run() {
    return session_.run([this] { return take_steps(); });
  }

  const fs::path& run_dir() const { return start_.run_dir; }

 private:
  // All ranks read it before one can fail, because a failure removes the directory of a new run.
  std::unique_ptr<data::Tokenizer> load_tokenizer() {
    const auto busy = meeting_.busy();
    std::unique_ptr<data::Tokenizer> tokenizer = data::load_tokenizer(start_.run_dir);
    meeting_.meet("tokenizer");
    require_sample(config_.train, *tokenizer);
    return tokenizer;
  }

  std::shared_ptr<const data::Dataset> open_dataset() {
    const auto busy = meeting_.busy();
    return data::open_dataset(config_, *tokenizer_, session_.plan().sizes.shape.vocab, {start_.step, start_.samples});
  }

  bool take_steps() {
    runtime::Interpreter& interpreter = session_.interpreter();
    if (start_.step >= config_.train.steps) {
      say(fmt::format("nothing to do: the checkpoint is of step {} and train.steps={}", start_.step, config_.train.steps));
      return true;
    }
    if (stop_.stop_here()) return say_stopped(start_.step);
    TrainingBatches batches(host_memory_, session_.plan(), dataset_, start_.step + 1, config_.train.steps);
    if (dataset_->validation_tokens() > 0)
      validation_.emplace(host_memory_, session_.plan(), dataset_, config_.train.eval_batches);
    StepTracer tracer(config_.log.trace_steps, start_.step + 1, config_.train.steps);
    for (const std::int64_t step : config_.log.trace_steps) {
      if (step > config_.train.steps)
        say(fmt::format("log.trace_steps: step {} is not traced, the run ends with train.steps={}", step, config_.train.steps));
    }
    interpreter.synchronize_warm_up();
    if (stop_.stop_here()) return say_stopped(start_.step);
    take_over_run_directory();
    bool told_of_launch = interpreter.launch_is_settled();
    if (const std::string launch = interpreter.launch_text(); !launch.empty()) say(launch);
    window_start_ = Clock::now();
    for (std::int64_t step = start_.step + 1; step <= config_.train.steps; ++step) {
      const runtime::UpdateSettings settings = update_settings(config_, step, learning_rate_.at(step - 1));
      if (tracer.wants(step)) {
        take_results(0);
        tracer.synchronize_step(interpreter, batches, settings, meeting_);
      } else {
        interpreter.run_step(batches, settings);
      }
      if (!std::exchange(told_of_launch, interpreter.launch_is_settled()) && told_of_launch) say(interpreter.launch_text());
      while (const auto result = interpreter.next_result()) take(*result);
      if (tracer.is_full()) {
        const auto before = Clock::now();
        tracer.write(start_.run_dir, session_.plan(), rank_, meeting_, [this](const std::string& text) { say(text); });
        window_start_ += Clock::now() - before;
      }
      if (reporter_) reporter_->progress().advance(step);
      if (after_step(step, batches) && step < config_.train.steps) return say_stopped(step);
    }
    stop_.leave();
    if (reporter_) reporter_->progress().finish();
    report_ledgers();
    hold_to_account();
    if (const std::string uses =
            source_report(dataset_->sources_used(samples_after(config_.train.steps)), dataset_->sequence_length());
        !uses.empty())
      say(uses);
    say(session_.memory_report().to_string(rank_.rank));
    say("run directory: " + start_.run_dir.string());
    return true;
  }

  // The number of steps that may be enqueued. They still run before a run can stop, so at most about 50 ms of them, and at
  // least two, so that the device has the next one when it finishes one.
  int steps_ahead() const {
    if (latest_.device_ms <= 0) return runtime::Interpreter::results_in_flight;
    return static_cast<int>(std::clamp(50.0f / latest_.device_ms, 2.0f, float{runtime::Interpreter::results_in_flight}));
  }

  // Returns false, for run().
  bool say_stopped(std::int64_t step) {
    if (!reporter_) return false;
    reporter_->progress().finish();
    reporter_->progress().print(stopped_text(request_, start_, step, stop_.reason()));
    return false;
  }

  void say(const std::string& text) {
    if (reporter_) reporter_->progress().print_prose(text);
  }

  void tell_plan() {
    const nlohmann::ordered_json links = gather_links("links", session_.links(), meeting_);
    nlohmann::ordered_json exchange_links =
        gather_links("exchange links", session_.links_within(parallel::exchange_group), meeting_);
    nlohmann::ordered_json reduction_links =
        gather_links("reduction links", session_.links_within(parallel::reduction_group), meeting_);
    if (!rank_.is_main) return;
    const parallel::RankPlan& mine = session_.plan();
    const auto plans = parallel::make_job_plan(config_, tokenizer_->vocab(), mine.layout, mine.device_kind);
    parallel::require_valid(parallel::training_programs(plans));
    parallel::require_valid(parallel::evaluation_programs(plans));
    std::vector<std::string> devices;
    for (int r = 0; r < rank_.size; ++r) devices.push_back(to_string(site::placed_device(config_, mine.device_kind, r)));
    plan_ = parallel::plan_document(plans, devices, decision_);
    prediction_ = predicted_run(decision_);
    if (!prediction_) say(decision_.at("explanation").front().get<std::string>());
    if (!session_.paths().is_null()) plan_["paths"] = session_.paths();
    plan_["point_to_point"] = links;
    const nlohmann::ordered_json exchanges = exchange_report(mine, std::move(exchange_links));
    if (!exchanges.is_null()) plan_["exchanges"] = exchanges;
    const nlohmann::ordered_json reductions = reduction_report(mine, std::move(reduction_links));
    if (!reductions.is_null()) plan_["reductions"] = reductions;
    std::int64_t parameters = 0;
    for (const model::Parameter& p : model::parameters(mine.sizes.shape)) parameters += p.stored;
    say(fmt::format("{} parameters, {}, {} with {} gradients, {} on {} ({})", format_count(static_cast<double>(parameters)),
                    mine.layout.to_string(),
                    std::string(to_string(mine.sizes.compute)) + (mine.sizes.fp8 ? " (products of blocks: FP8)" : ""),
                    to_string(mine.gradient_type), comm::backend_name(mine.device_kind), to_string(rank_.device),
                    device_name(rank_.device)));
    if (!session_.paths().is_null()) say(path_table(session_.paths()));
    if (!links.empty()) say(link_table(links, terminal_width(stderr)));
    for (const std::string& text :
         {exchange_text(exchanges, terminal_width(stderr)), reduction_text(reductions, terminal_width(stderr))}) {
      if (!text.empty()) say(text);
    }
  }

  // Adds the prediction to the measurements, once there are any.
  void hold_to_account() {
    if (run_ledger_.steps() == 0) return;
    const MemoryReport memory = session_.memory_report();
    const std::size_t bytes = memory.device_bytes > 0 ? memory.device_bytes : memory.allocated_bytes;
    const std::vector<std::size_t> peaks = meeting_.gather_on(0, "peak", bytes);
    if (!rank_.is_main || !prediction_) return;
    const parallel::Ledger mean = run_ledger_.mean();
    prediction_->measured = {mean.step_ms, mean.exposed_ms(), {peaks.begin(), peaks.end()}};
    write_text_file(start_.run_dir / "prediction.json", to_json(*prediction_).dump(2) + "\n");
    say(accuracy_line(*prediction_));
  }

  void load_or_initialize() {
    runtime::Interpreter& interpreter = session_.interpreter();
    if (!start_.continues()) interpreter.initialize(config_.run.seed);
    if (!start_.checkpoint.empty()) load();
    for (const std::string& note : origin_.notes) say(note);
  }

  void load() {
    runtime::Interpreter& interpreter = session_.interpreter();
    const std::unique_ptr<checkpoint::WeightsReader> weights = interop::open_weights(start_.checkpoint);
    if (weights->digest() != start_.digest) {
      throw ConfigError(
          fmt::format("{}: holds other weights here than on rank 0: copies of them have to be the same, times of "
                      "last change included (cp -p, rsync -t)",
                      start_.checkpoint.string()));
    }
    verify_copies(*weights, meeting_);
    std::optional<checkpoint::CheckpointReader> before;
    if (start_.continues()) compare_samples(before.emplace(start_.checkpoint));
    synchronize_load(interpreter, *weights, start_.restored);
    if (before) adopt_choices(*before);
    meeting_.meet("loaded");
  }

  // Called when the first step is next: a new run keeps its directory, and records of later steps by an earlier start are
  // removed.
  void take_over_run_directory() {
    if (!rank_.is_main) return;
    if (origin_.uncertain) origin_.uncertain->keep();
    reporter_->begin_records(start_);
    write_text_file(start_.run_dir / "plan.json", plan_.dump(2) + "\n");
    if (!start_.resumed) return;
    for (const fs::path& moved : checkpoint::set_aside_after(start_.run_dir, start_.step)) say("set aside: " + moved.string());
  }

  // A resumed run goes on with the next samples; a fork may go on with others, and says so.
  void compare_samples(const checkpoint::CheckpointReader& checkpoint) {
    if (!has_sample_record(checkpoint)) return;  // reported already (train/run_start.h)
    std::vector<ConfigProblem> differences = order_differences(checkpoint, *dataset_);
    if (differences.empty()) return;
    if (!start_.resumed) {
      for (const ConfigProblem& found : differences)
        say(fmt::format("the order of samples is another one: {} is {}, it {}", found.path, found.value, found.rule));
      return;
    }
    differences.back().rule += "; a new run may go on with other samples: " + command_to_fork(start_.checkpoint);
    throw ConfigError(std::move(differences));
  }

  // Adopts the kernels that the earlier steps were computed with, so that the next ones have the same bits.
  void adopt_choices(const checkpoint::CheckpointReader& checkpoint) {
    runtime::Interpreter& interpreter = session_.interpreter();
    const auto choices = kernel_choices(checkpoint);
    const int unusable = interpreter.context().adopt_choices(choices);
    if (unusable > 0) {
      say(
          fmt::format("{} of the {} kernel choices in {} do not fit this device or library version: those kernels are chosen "
                      "anew and results may differ in the last bits",
                      unusable, choices.size(), start_.checkpoint.string()));
    }
  }

  // Waits for results until at most `most` are pending.
  void take_results(int most) {
    runtime::Interpreter& interpreter = session_.interpreter();
    while (interpreter.pending_results() > most) take(interpreter.synchronize_result());
  }

  void take(const runtime::StepResult& result) {
    if (result.halted) stop_at_non_finite(result);
    latest_ = result;
    if (result.loss_tokens == 0) ++steps_without_targets_;
    window_ledger_.add(result.ledger);
    if (result.update > start_.step + 1) run_ledger_.add(result.ledger);
  }

  // True if the run is to stop; then the step is saved.
  bool after_step(std::int64_t step, const TrainingBatches& batches) {
    const bool first = step == start_.step + 1;
    const bool last = step == config_.train.steps;
    const auto every = [step](std::int64_t n) { return n > 0 && step % n == 0; };
    const bool evaluate = (every(config_.train.eval_every) || last) && dataset_->validation_tokens() > 0;
    const bool save = is_saved(config_, step);
    // The first step includes start-up; it is reported separately so that it does not distort the next window's speed.
    const bool report = first || last || every(config_.log.every) || evaluate;
    bool saved = false;
    const auto save_once = [&] {
      if (!std::exchange(saved, true)) checkpoint(step);
    };
    // Room for the next step is made before asking whether to stop, because enqueued steps run in any case.
    const int most_pending = report || save ? 0 : steps_ahead() - 1;
    take_results(most_pending);
    bool stop = stop_.stop_here();
    ++window_steps_;
    if (stop) take_results(0);
    if (stop && last) save_once();  // the evaluation may take longer than the sender of the signal waits
    if (report) {
      const double milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - window_start_).count();
      std::optional<runtime::EvaluationLoss> evaluated;
      std::optional<double> validation;
      if (evaluate && (last || !stop)) {
        evaluated = validation_loss([&] { return !last && (stop = stop_.stop_here()); });
        if (evaluated && evaluated->loss_tokens > 0) validation = evaluated->loss;
      }
      if (reporter_) {
        reporter_->step(latest_, learning_rate_.at(step - 1), milliseconds / static_cast<double>(window_steps_),
                        window_ledger_.mean(), (batches.stalled_ms() - stalled_before_) / static_cast<double>(window_steps_),
                        session_.memory_report().allocated_bytes, validation, *dataset_, samples_after(step));
      }
      if (const std::int64_t steps = std::exchange(steps_without_targets_, 0); steps > 0) {
        say(fmt::format("nothing was learned in {} of the steps up to {}: none of their targets counts (data.chat_template)",
                        steps, step));
      }
      if (evaluate && !evaluated) say(fmt::format("the evaluation after step {} was left out, as the run is to stop", step));
      if (evaluated && !validation) say("no validation loss: no target of the validation samples counts");
      if (validation && !std::isfinite(*validation)) {  // before the checkpoint: the next step, which would halt, may not come
        meeting_.meet("ruined");                        // rank 0's record of the step is written before any rank ends the job
        throw Error(fmt::format("step {}: validation loss {}: the weights that it made compute nothing finite; {}", step,
                                unsigned_nan(*validation), kept()));
      }
    }
    if (save || stop) save_once();
    if (!stop && !last && (report || save)) {  // the device has done the step meanwhile
      stop = stop_.stop_here();
      if (stop) save_once();
    }
    if (report || save) restart_window(batches);
    return stop;
  }

  // Reports the use of the steps' time, on this rank and on the rank that lost most.
  void report_ledgers() {
    if (rank_.size == 1 || run_ledger_.steps() == 0) return;
    const std::vector<parallel::Ledger> ledgers = meeting_.gather_on(0, "ledger", run_ledger_.mean());
    if (ledgers.empty()) return;
    say(spent_text(ledgers, run_ledger_.steps(), terminal_width(stderr)));
  }

  void restart_window(const TrainingBatches& batches) {
    stalled_before_ = batches.stalled_ms();
    window_start_ = Clock::now();
    window_steps_ = 0;
    window_ledger_ = {};
  }

  std::optional<runtime::EvaluationLoss> validation_loss(const std::function<bool()>& cut) {
    validation_->rewind();
    return session_.interpreter().synchronize_evaluation(*validation_, static_cast<int>(validation_->rounds()), cut);
  }

  // The time depends on the disk and may exceed the limit of any collective.
  void checkpoint(std::int64_t step) {
    const auto busy = meeting_.busy();
    if (meeting_.rank() == 0) lock_->require_in_place(start_.run_dir);
    nlohmann::ordered_json state = {{"step", step},
                                    {"seed", config_.run.seed},
                                    {"config", to_yaml(config_)},
                                    {"data", sample_record(*dataset_, samples_after(step))},
                                    {"kernel_choices", session_.interpreter().context().choices()}};
    if (!origin_.init_from.is_null()) state["init_from"] = origin_.init_from;
    const auto committed = synchronize_save(
        session_.interpreter(), start_.run_dir, step, state, config_.checkpoint.keep,
        [this](const std::string& name) { meeting_.meet(name); }, *rank_.life);
    saves_ = true;
    if (!committed) return;
    say("checkpoint: " + committed->directory.string());
    for (const std::string& problem : committed->prune_problems) say("warning: " + problem);
  }

  std::int64_t samples_after(std::int64_t step) const {
    return start_.samples + (step - start_.step) * config_.train.global_batch;
  }

  // Every rank looks for its own first bad tensor; all of them stop with the earliest.
  [[noreturn]] void stop_at_non_finite(const runtime::StepResult& result) {
    const auto busy = meeting_.busy();
    runtime::Interpreter& interpreter = session_.interpreter();
    interpreter.synchronize();
    TrainingBatches again(host_memory_, session_.plan(), dataset_, result.update, result.update);
    const std::string topic = "non_finite/" + std::to_string(result.update);
    meeting_.meet(
        topic + "/again");  // pinned memory is there on all ranks before work of one waits for another's (synchronize_warm_up)
    const std::optional<runtime::NonFinite> found = runtime::synchronize_find_non_finite(interpreter, again);
    const std::vector<BadTensor> all = meeting_.gather(topic, found ? BadTensor{found->order, found->where} : BadTensor{});
    std::string where;
    std::int64_t earliest = 0;
    for (int r = 0; r < rank_.size; ++r) {
      const BadTensor& bad = all[static_cast<std::size_t>(r)];
      if (bad.where.empty() || (!where.empty() && bad.order >= earliest)) continue;
      earliest = bad.order;
      where = fmt::format("first not finite on rank {}: {}", r, bad.where);
    }
    if (where.empty()) where = "every tensor of every rank is finite: their sum over ranks or squares overflowed";
    meeting_.meet(topic + "/told");
    throw Error(fmt::format("step {}: loss {}, gradient norm {}; {}. Weights were left as they were before this step; {}",
                            result.update, unsigned_nan(result.loss), unsigned_nan(result.grad_norm), where, kept()));
  }

  // Says what a failed run can continue from.
  std::string kept() const {
    return saves_ || start_.resumed ? "the last checkpoint is in " + checkpoint::checkpoints_directory(start_.run_dir).string()
                                    : "this run has no checkpoint yet";
  }

  const TrainRequest& request_;
  const Config& config_;
  const nlohmann::ordered_json& decision_;
  launch::RankContext& rank_;
  comm::Meeting meeting_;  // of all ranks
  launch::StopAgreement stop_;
  std::optional<checkpoint::RunLock> lock_;
  RunOrigin origin_;  // rank 0
  RunStart start_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  Session session_;
  std::shared_ptr<const data::Dataset> dataset_;
  LearningRate learning_rate_;
  DeviceMemory host_memory_;  // pinned batches; separate from the session's, so that its counters describe the arena
  std::optional<Reporter> reporter_;
  std::optional<ValidationBatches> validation_;
  std::optional<Accuracy> prediction_;  // rank 0
  nlohmann::ordered_json plan_;         // rank 0: the contents of plan.json
  bool saves_ = false;                  // this start has made a checkpoint

  runtime::StepResult latest_;
  parallel::LedgerSum window_ledger_;
  parallel::LedgerSum run_ledger_;  // all steps but the first, which includes start-up
  std::int64_t window_steps_ = 0;
  std::int64_t steps_without_targets_ = 0;  // since the last report
  double stalled_before_ = 0;               // in the window: time waiting for batches
  Clock::time_point window_start_;
};

// True if the run is complete.
bool train_rank(const TrainRequest& request, const launch::StopSignals& signals, launch::RankContext& rank) {
  fs::path run_dir;
  {
    Trainer trainer(request, signals, rank);
    if (!trainer.run()) return false;
    run_dir = trainer.run_dir();
  }
  const Config& config = request.job.config;
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
