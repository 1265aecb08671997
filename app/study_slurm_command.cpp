// plait study CONFIG --slurm DIR; and the steps of such a study, which also work without Slurm: plait study points DIR, plait
// study round DIR N [--only EXPR], plait study collect DIR [--json]
#include <spdlog/fmt/fmt.h>

#include <memory>

#include "checkpoint/run_directory.h"
#include "core/error.h"
#include "core/message.h"
#include "core/terminal.h"
#include "launch/stop_signals.h"
#include "study/display.h"
#include "study/resolution.h"
#include "study/runner.h"
#include "study/slurm_study.h"
#include "study_commands.h"
#include "usage.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

// Runs once: listed points stay as they are.
int list_points_into(const fs::path& folder) {
  if (!fs::exists(folder / "tasks") || !fs::exists(folder / "config.yaml"))
    throw ConfigError(folder.string() + ": was not made by plait study --slurm");
  const auto lock = checkpoint::RunLock::own(folder, std::chrono::seconds(0), [](const std::string&) {});
  if (fs::exists(folder / "points.jsonl")) {
    fmt::print("{}: its points are listed already\n", folder.string());
    return 0;
  }
  const Config config = checkpoint::load_run_config(folder);
  const train::Environment environment = train::environment_here();
  const auto points = listed_points(config, environment, static_cast<int>(config.study.slurm.ranks_per_node.value_or(0)));
  study::keep_points(folder, environment, topology_here(config), points, true);
  fmt::print("{}", dry_run_table(config, points, terminal_width(stdout)));
  return 0;
}

int measure_round(const fs::path& directory, int number, const std::string& only, const std::string& program) {
  study::StudyFolder folder(directory, number);
  const study::StopReason reason = measure(folder, {.program = program, .only = only, .round = number});
  fmt::print("round {}: {}\n", number, to_string(reason));
  return reason == study::StopReason::interrupted ? launch::stopped_status : 0;
}

int collect(const fs::path& directory, bool json) {
  study::StudyData data = study::read_study(directory);
  if (data.config.study.simulate.device == "auto" && !data.config.study.simulate.gpus.empty() &&
      train::environment_here().machine() != data.environment.machine()) {
    message_to_stderr("warning: nothing is simulated: this is another machine than the study's, " + data.environment.machine());
    data.config.study.simulate.gpus.clear();
  }
  const int status = finish_study(data, json);
  const std::vector<int> missing = study::missing_rounds(data);
  if (missing.empty()) return status;
  message_to_stderr(
      fmt::format("missing: rounds {}. To measure them, with what else submit.sh was given: cd {} && sbatch --array={} {}",
                  fmt::join(missing, ", "), shell_quoted(fs::absolute(directory).lexically_normal().string()),
                  study::array_of(data.config, missing), "rounds.sbatch"));
  return status == 0 ? launch::stopped_status : status;
}

}  // namespace

void prepare_for_slurm(const Config& config, const fs::path& folder) {
  const study::SlurmShape shape = study::slurm_shape(config);
  for (const fs::path& path : study::write_slurm_study(folder, config, fs::read_symlink("/proc/self/exe"), fs::current_path()))
    fmt::print("{}\n", path.string());
  fmt::print("{} points of at most {} ranks; {} rounds, each on {} node{} of {} ranks for at most {} minutes\n", shape.points,
             shape.most_ranks, shape.rounds.most, shape.nodes, shape.nodes == 1 ? "" : "s", shape.ranks_per_node,
             shape.minutes);
  fmt::print("next: sh {}, with the options that sbatch needs here (--partition=..., --account=...)\n",
             shell_quoted((fs::canonical(folder) / "submit.sh").string()));
}

void add_study_slurm_commands(CLI::App& study, int& status, const std::string& program) {
  struct Options {
    std::string folder, only;
    int number = 0;
    bool json = false;
  };
  const auto step = [&](const char* name, const char* purpose) {
    auto options = std::make_shared<Options>();
    CLI::App* command = study.add_subcommand(name, purpose);
    command->add_option("DIR", options->folder, "The folder that --slurm made")->required();
    return std::pair(command, options);
  };
  const auto [points, listing] =
      step("points", "List the points of a study under Slurm, on a node of the kind that measures it");
  points->callback([listing = listing, &status] { status = list_points_into(listing->folder); });

  const auto [round, measuring] = step("round", "Measure one round of a study under Slurm; nothing twice");
  round->add_option("NUMBER", measuring->number, "From 1 to the most of study.measure.rounds")
      ->required()
      ->check(whole_number(measuring->number, 1));
  round->add_option("--only", measuring->only, "As of plait study")->type_name("EXPR");
  round->callback([measuring = measuring, program, &status] {
    status = measure_round(measuring->folder, measuring->number, measuring->only, program);
  });

  const auto [collecting, collected] =
      step("collect", "Write the report of a study under Slurm, and say which rounds are missing");
  collecting->add_flag("--json", collected->json, "One JSON document on stdout, everything else on stderr");
  collecting->callback([collected = collected, &status] { status = collect(collected->folder, collected->json); });
}

}  // namespace plait
