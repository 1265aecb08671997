// plait train CONFIG [--set path=value ...] [--resume RUN_DIR] [--plan plan.json]
#include <spdlog/fmt/fmt.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "checkpoint/run_directory.h"
#include "commands.h"
#include "core/config.h"
#include "core/error.h"
#include "core/json_file.h"
#include "launch/agreement.h"
#include "launch/job_planning.h"
#include "launch/stop_signals.h"
#include "plan/report.h"
#include "train/trainer.h"

namespace plait {
namespace {

constexpr std::uint64_t most_plan_bytes = std::uint64_t{1} << 30;

}  // namespace

void add_train_command(CLI::App& app, int& status, int argc, char** argv) {
  struct Options {
    std::string config, resume, plan;
    std::vector<std::string> set;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("train", "Train a model from a configuration file");
  command->add_option("CONFIG", options->config, "Configuration (YAML); with --resume, that run's own by default");
  command->add_option("--set", options->set, "Override a value: --set train.steps=100 (repeatable)")->type_name("PATH=VALUE");
  command->add_option("--resume", options->resume,
                      "Continue from the newest checkpoint of a run directory, or from a given checkpoint");
  command->add_option("--plan", options->plan,
                      "Run the plan that `plait plan --json` wrote: layout, schedule, micro-batch, placement");
  command->callback([options, &status, argc, argv] {
    if (options->config.empty() && options->resume.empty())
      throw ConfigError("train: give a configuration file, or --resume RUN_DIR");
    train::TrainRequest request;
    // From when the other ranks are there: planning may take a while. Until then a signal ends the process, as nothing is lost.
    std::optional<launch::StopSignals> signals;
    if (auto settled = launch::settled_by_launcher()) {
      request.joined = launch::join_job(settled->config);
      signals.emplace();
      request.job = std::move(*settled);
    } else {
      Config config = options->config.empty()
                          ? checkpoint::load_run_config(checkpoint::run_directory_of(options->resume), options->set)
                          : load_config(options->config, options->set);
      if (!options->plan.empty())
        config = plan::apply_choice(std::move(config), read_json_file(options->plan, most_plan_bytes), options->plan);
      if (!options->resume.empty()) {
        const std::string changed = checkpoint::changed_schedule(checkpoint::run_directory_of(options->resume), config);
        if (!changed.empty()) fmt::print(stderr, "{}\n", changed);
      }
      request.joined = launch::join_job(config);
      signals.emplace();
      request.job = launch::settle(config);
      if (!request.job.note.empty()) fmt::print(stderr, "{}\n", request.job.note);
      launch::tell_rank_processes(request.job);
    }
    request.resume = options->resume;
    request.argv.assign(argv, argv + argc);
    status = train::train(request);
  });
}

}  // namespace plait
