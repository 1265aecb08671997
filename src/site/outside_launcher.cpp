#include "site/outside_launcher.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/parse_number.h"

namespace plait::site {
namespace {

// The variable as a number; -1: not set, or not a number from 0 on.
int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::max(whole_number<int>(text).value_or(-1), -1) : -1;
}

// A launcher that sets a process's place in the environment.
struct OutsideLauncher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;                   // null: each rank is alone on its host
  std::array<const char*, 3> job_id;        // together they name the job and its restart; may be unset
  bool (*is_here)() = [] { return true; };  // true if the other variables describe this process
};

// Slurm's variables are inherited by everything below a batch script or a shell, where they describe the allocation. Processes
// started by srun have the number of a job step; batch scripts, and shells of salloc with
// LaunchParameters=use_interactive_step, have none or a reserved one at the end of the range.
bool in_step_of_slurm() {
  const bool shell = std::getenv("SLURM_PTY_PORT") && ::isatty(STDIN_FILENO) == 1;  // srun --pty: task 0 alone has the terminal
  return number_in("SLURM_STEP_ID") >= 0 && number_in("SLURM_STEP_NUM_TASKS") > 1 && !shell;
}

// The operators of Kubernetes that set these variables set no rank within the host, since every pod is one.
bool in_pod_of_a_job() { return std::getenv("MASTER_ADDR") && std::getenv("MASTER_PORT") && !std::getenv("LOCAL_RANK"); }

// mpirun and torchrun also run inside Slurm allocations, whose variables then describe the batch script: Slurm comes last.
constexpr std::array<OutsideLauncher, 4> outside_launchers = {{
    {"Kubernetes", "RANK", "WORLD_SIZE", nullptr, {"", "", ""}, in_pod_of_a_job},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", ""}},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", ""}},
    {"Slurm",
     "SLURM_PROCID",
     "SLURM_NTASKS",
     "SLURM_LOCALID",
     {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"},
     in_step_of_slurm},
}};

// A launcher that has set this process's rank, or the number of ranks.
struct Spoken {
  const OutsideLauncher* launcher;
  bool is_here;   // it describes this process, and not the shell or script around it
  bool is_whole;  // and gives a complete place in a larger job
  bool is_alone;  // or says that there are no others
};

// The most complete comes first: a whole place, then a rank, then a number of ranks.
std::vector<Spoken> who_has_spoken() {
  std::vector<Spoken> spoken;
  for (const OutsideLauncher& launcher : outside_launchers) {
    const bool told_by_name = launcher.local_rank,
               is_here = launcher.is_here();  // without a local rank, launchers are recognised by the variables they do not set
    if ((!std::getenv(launcher.rank) && !std::getenv(launcher.size)) || !(told_by_name || is_here)) continue;
    const int rank = number_in(launcher.rank), size = number_in(launcher.size);
    const bool has_local = !launcher.local_rank || number_in(launcher.local_rank) >= 0;
    spoken.push_back({.launcher = &launcher,
                      .is_here = is_here,
                      .is_whole = is_here && size > 1 && rank >= 0 && rank < size && has_local,
                      .is_alone = size == 1 && rank <= 0});
  }
  std::ranges::stable_sort(spoken, std::greater<>(),
                           [](const Spoken& s) { return std::pair(s.is_whole, std::getenv(s.launcher->rank) != nullptr); });
  return spoken;
}

// The launcher that has started this process together with others.
const OutsideLauncher* present_launcher() {
  const std::vector<Spoken> spoken = who_has_spoken();
  return !spoken.empty() && spoken.front().is_whole ? spoken.front().launcher : nullptr;
}

// The launcher whose variables launch.mode external reads.
const OutsideLauncher& launcher_of_ranks() {
  if (const std::vector<Spoken> spoken = who_has_spoken(); !spoken.empty()) return *spoken.front().launcher;
  std::string expected;
  for (const OutsideLauncher& launcher : outside_launchers)
    expected += (expected.empty() ? "" : ", ") + std::string(launcher.rank) + " (" + launcher.name + ")";
  throw ConfigError({{"launch.mode", "external", "no launcher has set this process's rank; looked for " + expected, "", 0}});
}

}  // namespace

OutsidePlace outside_place(const Config& config) {
  const OutsideLauncher& launcher = launcher_of_ranks();
  std::vector<ConfigProblem> problems;
  OutsidePlace place;
  place.rank = number_of(launcher.rank, problems);
  place.size = number_of(launcher.size, problems, 1);
  place.local_rank = launcher.local_rank ? number_of(launcher.local_rank, problems) : 0;
  if (config.launch.rendezvous.empty()) {
    const std::string who = !config.launch.mode.is_auto()
                                ? "launch.mode external needs"
                                : std::string(launcher.name) + " has started this process as one of " +
                                      std::to_string(place.size) + " ranks, which need";
    problems.push_back({"launch.rendezvous", "", who + " a directory that all of them share, or tcp", "", 0});
  }
  check_place(place.rank, place.size, launcher.rank, problems);
  return place;
}

std::string outside_job_name() {
  std::string name = "plait-job";
  for (const char* variable : launcher_of_ranks().job_id) {
    const char* text = *variable ? std::getenv(variable) : nullptr;
    if (!text || !*text) continue;
    name += '-';
    for (const char* c = text; *c; ++c) name += std::isalnum(static_cast<unsigned char>(*c)) ? *c : '_';
  }
  return name;
}

std::optional<OutsideRank> started_from_outside() {
  const OutsideLauncher* launcher = present_launcher();
  if (!launcher) return std::nullopt;
  return OutsideRank{launcher->name, number_in(launcher->rank), number_in(launcher->size)};
}

LaunchMode launch_mode(const Config& config) {
  if (!config.launch.mode.is_auto()) return config.launch.mode.value();
  // A rank that should meet others is one of them, even if the environment describes it only in part.
  const bool is_told = std::ranges::any_of(who_has_spoken(), [&](const Spoken& s) {
    return s.is_whole || (!config.launch.rendezvous.empty() && s.is_here && !s.is_alone);
  });
  return is_told ? LaunchMode::external : LaunchMode::threads;
}

std::string local_rank_variable() { return launcher_of_ranks().local_rank; }

int number_of(const char* variable, std::vector<ConfigProblem>& problems, int least) {
  const int number = number_in(variable);
  if (number >= least) return number;
  const char* text = std::getenv(variable);
  const std::string rule =
      text ? "must be a number from " + std::to_string(least) + " to " + std::to_string(std::numeric_limits<int>::max())
           : "is missing";
  problems.push_back({std::string("environment variable ") + variable, text ? text : "", rule, "", 0});
  return 0;
}

void check_place(int rank, int size, const char* rank_name, std::vector<ConfigProblem>& problems) {
  if (problems.empty() && rank >= size) {
    problems.push_back({std::string("environment variable ") + rank_name, std::to_string(rank),
                        "must be less than the number of ranks, " + std::to_string(size), "", 0});
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

}  // namespace plait::site
