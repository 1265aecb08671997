#include "study/srun_step.h"

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <sstream>

#include "comm/tcp/proof.h"
#include "comm/tcp/socket.h"
#include "core/device.h"
#include "core/error.h"
#include "core/parse_number.h"

namespace plait::study {
namespace {

namespace fs = std::filesystem;

// srun tells every node's ranks to end, and waits until they have.
constexpr std::chrono::seconds step_ends{30};

std::optional<std::string> variable(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::optional<std::string>(text) : std::nullopt;
}

fs::path find_program(const std::string& name) {
  std::istringstream folders(variable("PATH").value_or("/usr/bin:/bin"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path path = fs::path(folder.empty() ? "." : folder) / name;
    if (::access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path)) return path;
  }
  throw ConfigError({{"environment variable PATH", variable("PATH").value_or(""),
                      "has no " + name + ", which starts the ranks of a point on several nodes", "", 0}});
}

int nodes_of(int ranks, int ranks_per_node) {
  require(ranks > 0 && ranks_per_node > 0, "a step has ranks, and a node takes some");
  return (ranks + ranks_per_node - 1) / ranks_per_node;
}

// A port that is free now. If another process takes it before rank 0 listens there, the point ends with an error that says so.
int free_port() { return comm::port_of(comm::listen_on("0.0.0.0", 0)); }

// Slurm's name of this node or, if that is not a name of the network, the kernel's.
std::string this_node() {
  const auto name = variable("SLURMD_NODENAME");
  if (!name) return host_name();
  try {
    comm::addresses_of(*name);
    return *name;
  } catch (const CommError&) {
    return host_name();
  }
}

std::string fresh_token() {
  std::string text;
  for (const std::byte byte : comm::random_digest()) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

}  // namespace

void require_allocation(int ranks, int ranks_per_node) {
  const int needed = nodes_of(ranks, ranks_per_node);
  const auto nodes = whole_number<int>(variable("SLURM_JOB_NUM_NODES").value_or(""));
  if (variable("SLURM_JOB_ID") && nodes && *nodes >= needed) return;
  const std::string have =
      nodes ? fmt::format("this allocation of Slurm has {}", *nodes) : std::string("this process is in no allocation of Slurm");
  throw ConfigError({{"launch.ranks", std::to_string(ranks),
                      fmt::format("needs {} nodes of {} ranks each, and {}: run it in one (sbatch, salloc) of as many, or "
                                  "leave such points to one: --only 'ranks <= {}'",
                                  needed, ranks_per_node, have, ranks_per_node),
                      "", 0}});
}

ProcessSpec srun_step(const std::vector<std::string>& argv, int ranks, int ranks_per_node) {
  const int nodes = nodes_of(ranks, ranks_per_node);
  ProcessSpec spec;
  spec.program = find_program("srun");
  // Overrides the environment and defaults of the site: all variables are passed on, no MPI is prepared, and nothing is bound,
  // since plait binds its ranks itself.
  spec.argv = {"srun",
               fmt::format("--nodes={}", nodes),
               fmt::format("--ntasks={}", ranks),
               fmt::format("--ntasks-per-node={}", std::min(ranks, ranks_per_node)),
               "--relative=0",
               "--distribution=block",
               "--export=ALL",
               "--mpi=none",
               "--cpu-bind=none",
               "--kill-on-bad-exit=1",
               fs::read_symlink("/proc/self/exe").string()};
  spec.argv.insert(spec.argv.end(), argv.begin() + 1, argv.end());
  spec.environment = {{"MASTER_ADDR", variable("MASTER_ADDR").value_or(this_node())},
                      {"MASTER_PORT", variable("MASTER_PORT").value_or(std::to_string(free_port()))},
                      {"PLAIT_TOKEN", fresh_token()}};
  spec.grace = step_ends;
  return spec;
}

}  // namespace plait::study
