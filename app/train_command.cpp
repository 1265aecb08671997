// plait train CONFIG [--set path=value ...] [--resume RUN_DIR | --init-from WEIGHTS [--with-optimizer]] [--plan
// plan.json]
#include <spdlog/fmt/fmt.h>

#include <cstdint>
#include <memory>

#include "checkpoint/run_directory.h"
#include "commands.h"
#include "config/config.h"
#include "config/schema.h"
#include "core/device.h"
#include "core/error.h"
#include "core/json.h"
#include "core/message.h"
#include "core/terminal.h"
#include "interop/trained_model.h"
#include "launch/settled_job.h"
#include "launch/stop_signals.h"
#include "plan/report.h"
#include "train/trainer.h"

namespace plait {
namespace {

constexpr std::uint64_t most_plan_bytes = std::uint64_t{1} << 30;

struct TrainOptions {
  std::string config, resume, init_from, plan;
  std::vector<std::string> set;
  bool with_optimizer = false;
};

// The overrides behind --init-from, --with-optimizer and --plan, then --set.
std::vector<std::string> overrides_of(const TrainOptions& options) {
  std::vector<std::string> overrides;
  if (!options.init_from.empty()) overrides.push_back("train.init_from.path=" + config::yaml_text(options.init_from));
  // A run's own configuration names that run's origin, which does not concern runs that start from it.
  if (options.resume.empty() && (options.with_optimizer || options.config.empty()))
    overrides.push_back(fmt::format("train.init_from.optimizer={}", options.with_optimizer));
  // The other run's layout is not a request of this user.
  if (options.config.empty() && !options.plan.empty()) {
    const std::vector<std::string> open = plan::left_to_a_plan();
    overrides.insert(overrides.end(), open.begin(), open.end());
  }
  overrides.insert(overrides.end(), options.set.begin(), options.set.end());
  return overrides;
}

// The configuration of the run or the file, before a plan chooses.
Config given_config(const TrainOptions& options) {
  if (!options.resume.empty() && (!options.init_from.empty() || options.with_optimizer)) {
    throw ConfigError("train: --resume goes on with a run, --init-from starts a new one: give one of the two");
  }
  if (!options.config.empty()) return load_config(options.config, overrides_of(options), interop::read_model_directory);
  if (!options.init_from.empty()) return interop::trained_config(options.init_from, overrides_of(options));
  if (options.resume.empty()) throw ConfigError("train: give a configuration file, --resume RUN_DIR or --init-from RUN_DIR");
  return checkpoint::load_run_config(checkpoint::run_directory_of(options.resume), overrides_of(options));
}

parallel::DecidedConfig asked_by(const TrainOptions& options) {
  parallel::DecidedConfig asked{.config = given_config(options), .decision = {}};
  Config& config = asked.config;
  if (!options.plan.empty()) {
    const bool by_itself = config.launch.device == "cuda";  // by the configuration itself
    asked = plan::apply_choice(config, read_json_file(options.plan, most_plan_bytes), options.plan);
    if (std::string why; !by_itself && config.launch.device == "cuda" && cuda_device_count(&why) == 0) {
      throw ConfigError(options.plan + ": is a plan for GPUs, but none can be used: " + why +
                        "; `plait plan --device cpu --json` makes one for CPUs");
    }
  }
  if (!options.resume.empty()) {
    const std::string changed = checkpoint::changed_schedule(checkpoint::run_directory_of(options.resume), config);
    if (!changed.empty()) message_to_stderr(changed);
  }
  return asked;
}

}  // namespace

void add_train_command(CLI::App& app, int& status, int argc, char** argv) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* command = app.add_subcommand("train", "Train a model from a configuration file");
  command->add_option("CONFIG", options->config,
                      "Configuration (YAML); with --resume or --init-from, that run's own by default");
  command->add_option("--set", options->set, "Override a value: --set train.steps=100 (repeatable)")->type_name("PATH=VALUE");
  command->add_option("--resume", options->resume,
                      "Continue from the newest checkpoint of a run directory, or from a given checkpoint");
  command->add_option("--init-from", options->init_from,
                      "Start a new run with the weights of another: of its newest checkpoint, of a given one, or of a model of "
                      "Hugging Face transformers");
  command->add_flag("--with-optimizer", options->with_optimizer,
                    "With --init-from: take its moments and step count too, and go on at that step");
  command->add_option("--plan", options->plan,
                      "Run the plan that `plait plan --json` wrote: layout, schedule, micro-batch, placement");
  command->callback([options, &status, argc, argv] {
    // Starts when the other ranks are there: until then a signal ends the process, as nothing is lost. It stays to the very
    // end: a signal that comes after the run, while the process exits, must not make it a failure.
    auto [job, joined, passed] = launch::begin_job([&] { return asked_by(*options); }, [] { launch::StopSignals().stay(); });
    if (!job.note.empty()) StatusLine(detect_terminal(stderr)).print_prose(job.note);
    train::TrainRequest request;
    request.job = std::move(job);
    request.joined = std::move(joined);
    request.resume = options->resume;
    request.argv.assign(argv, argv + argc);
    status = train::train(request);
  });
}

}  // namespace plait
