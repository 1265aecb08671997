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

// What was asked for: a file, or what a run has kept; with the choices of a plan.
Config config_of(const std::string& file, const std::vector<std::string>& set, const std::string& resume,
                 const std::string& plan) {
  const std::filesystem::path run_dir = resume.empty() ? "" : checkpoint::run_directory_of(resume);
  Config config = file.empty() ? checkpoint::load_run_config(run_dir, set) : load_config(file, set);
  if (!plan.empty()) config = plan::apply_choice(std::move(config), read_json_file(plan, most_plan_bytes), plan);
  const std::string changed = resume.empty() ? "" : checkpoint::changed_schedule(run_dir, config);
  if (!changed.empty()) fmt::print(stderr, "{}\n", changed);
  return config;
}

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
    std::optional<launch::SettledJob> job = launch::settled_by_launcher();
    const Config config = job ? job->config : config_of(options->config, options->set, options->resume, options->plan);
    train::TrainRequest request;
    request.joined = launch::join_job(config);
    // From when the other ranks are there: planning may take a while. Until then a signal ends the process, as nothing is lost.
    const launch::StopSignals signals;
    if (!job) {
      job = launch::settle(config);
      if (!job->note.empty()) fmt::print(stderr, "{}\n", job->note);
      launch::tell_rank_processes(*job);
    }
    request.job = *std::move(job);
    request.resume = options->resume;
    request.argv.assign(argv, argv + argc);
    status = train::train(request);
  });
}

}  // namespace plait
