// The processes of a job that torchrun, Slurm, Open MPI or Kubernetes have started: recognised by their environment variables.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/error.h"

namespace plait::site {

// A process that an outside launcher has started together with others.
struct OutsideRank {
  std::string launcher;  // "torchrun"
  int rank = 0, size = 2;
};

// This process's place from the environment; nullopt in a shell, or if the launcher has started only one process. Rank, size
// and rank within the host must all be there, as valid numbers. Slurm also sets them in batch scripts and in salloc's shell,
// for any number of tasks: only a job step that srun started, with at least two tasks, counts, and not the shell of srun --pty.
std::optional<OutsideRank> started_from_outside();

// The way ranks are started: launch.mode, where `auto` is external if this process was started_from_outside(), else threads.
// With a launch.rendezvous it is also external if the environment gives a rank or a number of ranks, even if incomplete: ranks
// that should meet must not each train alone, so missing variables are an error (rank_from_environment).
LaunchMode launch_mode(const Config& config);

// The place of this process in the job, for launch.mode external. ConfigError that lists what the environment lacks.
struct OutsidePlace {
  int rank = 0, size = 1;
  int local_rank = 0;  // among the ranks of this host
};
OutsidePlace outside_place(const Config& config);

// Names this job and this restart of it, so that no rank reads an earlier one's addresses.
std::string outside_job_name();

// The variable that holds the rank within the host, for messages.
std::string local_rank_variable();

// The number that a launcher passes in an environment variable, from `least` on; otherwise adds to `problems`.
int number_of(const char* variable, std::vector<ConfigProblem>& problems, int least = 0);

// Throws the problems, and one of its own for a rank that is not below the number of ranks.
void check_place(int rank, int size, const char* rank_name, std::vector<ConfigProblem>& problems);

}  // namespace plait::site
