#include "study/slurm_study.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>

#include "checkpoint/run_directory.h"
#include "core/error.h"
#include "core/file.h"
#include "core/message.h"
#include "core/parse_number.h"
#include "study/expansion.h"

namespace plait::study {
namespace {

namespace fs = std::filesystem;

constexpr int gpus_of_node = 8;
constexpr int ranks_where_unsaid = 2;   // on CPUs, as in expand()
constexpr int listing_minutes = 60;     // a tokenizer may have to be trained
constexpr int collecting_minutes = 60;  // simulations of many points
constexpr int starting_minutes = 10;    // for a round, besides its points
constexpr int most_minutes = 60 * 24 * 365;

// Names of jobs appear in Slurm's tables and in patterns of file names.
std::string job_name(const Config& study, const std::string& step) {
  std::string name = study.run.name;
  std::ranges::replace_if(name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '_' && c != '.'; }, '_');
  return name + "-" + step;
}

struct Job {
  std::string step, purpose;
  int nodes = 1, tasks_per_node = 1, gpus_per_node = 0, minutes = 1;
  std::vector<std::string> more = {};  // options
  std::string log;                     // a pattern of sbatch, in the study's folder, where submit.sh runs
  std::string command;                 // for the shell
};

std::string script(const Config& study, const Job& job, const fs::path& directory) {
  std::vector<std::string> options{"--job-name=" + job_name(study, job.step), fmt::format("--nodes={}", job.nodes),
                                   fmt::format("--ntasks-per-node={}", job.tasks_per_node)};
  if (job.gpus_per_node > 0) options.push_back(fmt::format("--gpus-per-node={}", job.gpus_per_node));
  options.insert(options.end(), job.more.begin(), job.more.end());
  options.push_back(fmt::format("--time={}", job.minutes));
  options.push_back("--output=" + job.log);
  options.push_back("--open-mode=append");
  std::string text = "#!/bin/sh\n# " + job.purpose + " Written by plait study --slurm; see submit.sh.\n";
  for (const std::string& option : options) text += "#SBATCH " + option + "\n";
  return text + fmt::format("cd {} &&\nexec {}\n", shell_quoted(directory.string()), job.command);
}

std::string submit_script(const fs::path& folder) {
  return fmt::format(R"(#!/bin/sh
# Submits the study in this folder: its points are listed, its rounds measured, and its report written. The arguments are
# sbatch's, for all three jobs:
#   sh submit.sh --partition=gpu --account=x
# Again, once those have ended: what was measured stays, and what is missing is measured.
set -eu
cd {}
points=$(sbatch --parsable "$@" points.sbatch)
rounds=$(sbatch --parsable --dependency="afterok:${{points%%;*}}" --kill-on-invalid-dep=yes "$@" rounds.sbatch)
collect=$(sbatch --parsable --dependency="afterany:${{rounds%%;*}}" "$@" collect.sbatch)
echo "submitted: points ${{points%%;*}}, rounds ${{rounds%%;*}}, collect ${{collect%%;*}}"
)",
                     shell_quoted(folder.string()));
}

void make_folder(const fs::path& folder) {
  if (fs::exists(folder) && (!fs::is_directory(folder) || !fs::is_empty(folder)))
    throw ConfigError({{"--slurm", folder.string(), "must be a folder that is empty or does not exist", "", 0}});
  create_private_directories(folder);
  if (::chmod(folder.c_str(), 0700) != 0)
    throw ConfigError({{"--slurm", folder.string(), "cannot be made private: " + errno_text(), "", 0}});
}

// A round waits for those before it if they may settle points.
bool may_settle_early(const Config& study, const config::RoundRange& rounds) {
  return rounds.least < rounds.most && percentage(study.study.measure.until).has_value();
}

// Suffix for the rounds of an array: as many at a time as every point needs.
std::string at_a_time(const Config& study, const config::RoundRange& rounds) {
  return may_settle_early(study, rounds) ? fmt::format("%{}", std::max(rounds.least, 2)) : "";
}

}  // namespace

SlurmShape slurm_shape(const Config& study) {
  SlurmShape shape;
  shape.on_gpus = study.launch.device != "cpu" && study.precision.compute != "fp64";
  shape.rounds = config::round_range(study.study.measure.rounds).value();
  const Auto<std::int64_t>& given = study.study.slurm.ranks_per_node;
  const int assumed = shape.on_gpus ? gpus_of_node : ranks_where_unsaid;
  std::string why;
  for (const Draft& draft : expand(study, static_cast<int>(given.value_or(assumed)))) {
    if (draft.pruning && why.empty()) why = draft.because;
    if (draft.pruning) continue;
    ++shape.points;
    shape.most_ranks = std::max(shape.most_ranks, draft.ranks);
  }
  if (shape.points == 0) throw ConfigError({{"study.axes", "", "list no point that could run: " + why, "", 0}});
  shape.ranks_per_node = shape.on_gpus ? gpus_of_node : static_cast<int>(limits::host_ranks.most);
  if (!given.is_auto()) shape.ranks_per_node = static_cast<int>(given);
  shape.ranks_per_node = std::min(shape.ranks_per_node, shape.most_ranks);
  shape.nodes = (shape.most_ranks + shape.ranks_per_node - 1) / shape.ranks_per_node;
  const BudgetConfig& budget = study.study.budget;
  double minutes = shape.points * budget.point_timeout_s / 60;
  if (!budget.minutes.is_auto()) minutes = std::min(minutes, budget.minutes + budget.point_timeout_s / 60);
  shape.minutes = static_cast<int>(std::min<double>(std::ceil(minutes) + starting_minutes, most_minutes));
  shape.simulates = !study.study.simulate.gpus.empty() && study.study.simulate.device == "auto";
  return shape;
}

std::string array_of(const Config& study, const std::vector<int>& rounds) {
  std::vector<std::string> parts;
  for (std::size_t n = 0; n < rounds.size();) {
    std::size_t end = n + 1;
    while (end < rounds.size() && rounds[end] == rounds[end - 1] + 1) ++end;
    parts.push_back(end - n == 1 ? std::to_string(rounds[n]) : fmt::format("{}-{}", rounds[n], rounds[end - 1]));
    n = end;
  }
  return fmt::format("{}{}", fmt::join(parts, ","), at_a_time(study, config::round_range(study.study.measure.rounds).value()));
}

std::vector<fs::path> write_slurm_study(const fs::path& given_folder, const Config& study, const fs::path& program,
                                        const fs::path& directory) {
  const SlurmShape shape = slurm_shape(study);
  make_folder(given_folder);
  const fs::path folder = fs::canonical(given_folder);
  Config kept = study;
  kept.study.slurm.ranks_per_node = shape.ranks_per_node;
  checkpoint::keep_config(folder, kept);
  create_private_directory(folder / "tasks");

  const auto step = [&](const std::string& arguments) { return shell_quoted(program.string()) + " study " + arguments; };
  const std::string quoted = shell_quoted(folder.string());
  const int gpus = shape.on_gpus ? shape.ranks_per_node : 0;
  // Whole nodes, because other jobs on a node would affect the measurements.
  const std::vector<std::string> alone{"--exclusive", "--mem=0"};
  std::vector<int> rounds(static_cast<std::size_t>(shape.rounds.most));
  std::iota(rounds.begin(), rounds.end(), 1);
  std::vector<std::string> of_array = alone;
  // The round of a node that fails goes to another; and a round that runs out of time ends its point in order.
  of_array.insert(of_array.end(), {"--array=" + array_of(study, rounds), "--requeue", "--signal=B:TERM@60"});
  const std::vector<Job> jobs = {
      {.step = "points",
       .purpose = "Lists the points on a node of the kind that measures them.",
       .gpus_per_node = gpus,
       .minutes = listing_minutes,
       .more = alone,
       .log = "points-%j.log",
       .command = step("points " + quoted)},
      {.step = "rounds",
       .purpose = "Each task measures the round of its number.",
       .nodes = shape.nodes,
       .tasks_per_node = shape.ranks_per_node,
       .gpus_per_node = gpus,
       .minutes = shape.minutes,
       .more = of_array,
       .log = "rounds-%A_%a.log",
       .command = step("round " + quoted + " \"$SLURM_ARRAY_TASK_ID\"")},
      {.step = "collect",
       .purpose = "Writes the report and says what is missing.",
       .gpus_per_node = shape.simulates ? gpus : 0,
       .minutes = collecting_minutes,
       .log = "collect-%j.log",
       .command = step("collect " + quoted)},
  };
  std::vector<fs::path> written{folder / "config.yaml"};
  for (const Job& job : jobs) {
    written.push_back(folder / (job.step + ".sbatch"));
    write_text_file(written.back(), script(study, job, directory));
  }
  written.push_back(folder / "submit.sh");
  write_text_file(written.back(), submit_script(folder));
  sync_directory(folder);
  return written;
}

}  // namespace plait::study
