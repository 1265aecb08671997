#include "train/job.h"

#include <utility>

#include "checkpoint/checkpoint_directory.h"
#include "core/error.h"
#include "core/file.h"
#include "core/units.h"
#include "train/report/environment.h"
#include "train/run_messages.h"
#include "train/sample_record.h"

namespace plait::train {

World::World(const Config& config, const launch::StopSignals& signals, launch::RankContext& context)
    : rank(context),
      meeting(context.meeting("run", milliseconds_of(config.comm.timeout_s))),
      stop(signals, context, meeting.timeout()) {}

void Reporter::begin_records(const RunStart& from) {
  environment_ = to_json(environment_here());
  metrics_.emplace(from.run_dir / "metrics.jsonl", from.resumed ? std::optional(from.step) : std::nullopt);
  write_text_file(from.run_dir / "environment.json", environment_.dump(2) + "\n");
  if (log_.tensorboard) tensorboard_.emplace(from.run_dir, from.step);
}

void Reporter::step(const StepMetrics& metrics) {
  auto line = to_json(metrics);
  if (tensorboard_) tensorboard_->scalars(line);
  if (!environment_.is_null()) line["environment"] = std::exchange(environment_, nullptr);
  metrics_->write(line);
  progress_.report(metrics);
  if (metrics.validation_loss) progress_.validation(metrics.step, *metrics.validation_loss);
}

Job::Job(const TrainRequest& request, World& world)
    : request_(request), start_(agree_on_start(config(), request.resume, world.meeting, lock_, origin_)) {
  require(lock_.has_value(), "each rank has its part of the lock on the run's directory");
  const auto busy = world.meeting.busy();
  tokenizer_ = data::load_tokenizer(run_dir());
  world.meeting.meet("tokenizer");  // before a rank can fail, as a failure removes the directory of a new run
  require_sample(config().train, *tokenizer_);
  if (world.rank.is_main) reporter_.emplace(config(), start_.step);
}

std::shared_ptr<const data::Dataset> Job::dataset(std::int64_t vocab) {
  if (!dataset_) dataset_ = data::open_dataset(config(), *tokenizer_, vocab, {start_.step, start_.samples});
  return dataset_;
}

std::int64_t Job::samples_after(std::int64_t step) const {
  return start_.samples + (step - start_.step) * config().train.global_batch;
}

nlohmann::ordered_json Job::checkpoint_state(std::int64_t step, const std::vector<std::string>& kernel_choices) const {
  nlohmann::ordered_json state = {{"step", step},
                                  {"seed", config().run.seed},
                                  {"config", to_yaml(config())},
                                  {"data", sample_record(*dataset_, samples_after(step))},
                                  {"kernel_choices", kernel_choices}};
  if (!origin_.init_from.is_null()) state["init_from"] = origin_.init_from;
  return state;
}

void Job::say(const std::string& text) {
  if (reporter_) reporter_->progress().print_prose(text);
}

void Job::say_origin() {
  for (const std::string& note : std::exchange(origin_.notes, {})) say(note);
}

void Job::take_over_run_directory(const RunStart& from, const nlohmann::ordered_json& plan) {
  if (!reporter_) return;
  if (origin_.uncertain) origin_.uncertain->keep();
  reporter_->begin_records(from);
  write_text_file(run_dir() / "plan.json", plan.dump(2) + "\n");
  if (!from.resumed) return;
  for (const std::filesystem::path& moved : checkpoint::set_aside_after(run_dir(), from.step))
    say("set aside: " + moved.string());
}

void Job::require_directory_in_place() const {
  if (reporter_) lock_->require_in_place(run_dir());
}

}  // namespace plait::train
