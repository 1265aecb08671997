// Finds this process's place in a job from the environment variables that its launcher set.
#include "launch/launch_environment.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "core/error.h"
#include "launch/job_rendezvous.h"
#include "launch/launch.h"
#include "launch/launch_processes.h"
#include "site/devices.h"
#include "site/environment_number.h"
#include "site/outside_launcher.h"

namespace plait::launch {
namespace {

Device external_device(const Config& config, int local_rank) {
  const site::DeviceChoice devices = site::choose_devices(config);
  if (devices.kind == DeviceKind::host) return {DeviceKind::host, local_rank};
  if (devices.count == 1) return {DeviceKind::cuda, 0};  // the launcher shows each rank its own GPU only
  if (local_rank >= devices.count) {
    throw ConfigError({{"environment variable " + site::local_rank_variable(), std::to_string(local_rank),
                        "this host has only " + std::to_string(devices.count) + " GPUs, and each rank needs its own", "", 0}});
  }
  return {DeviceKind::cuda, local_rank};
}

RankContext outside_context(const Config& config) {
  const site::OutsidePlace place = site::outside_place(config);
  RankContext context;
  context.rank = place.rank;
  context.size = place.size;
  context.local_rank = place.local_rank;
  context.is_main = place.rank == 0;
  return context;
}

RankContext child_place() {
  std::vector<ConfigProblem> problems;
  RankContext context;
  context.rank = site::number_of(rank_variable, problems);
  context.size = site::number_of(size_variable, problems, 1);
  const int launcher = site::number_of(launcher_variable, problems);
  site::check_place(context.rank, context.size, rank_variable, problems);

  // No rank outlives its launcher. If the launcher died before this call, this process already has another parent.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) throw CommError(std::string("prctl(PR_SET_PDEATHSIG): ") + std::strerror(errno));
  if (::getppid() != launcher) throw CommError("rank " + std::to_string(context.rank) + ": the launcher is gone");

  context.local_rank = context.rank;
  context.is_main = context.rank == 0;
  return context;
}

}  // namespace

std::optional<RankContext> place_from_environment(const Config& config) {
  if (site::launch_mode(config) == LaunchMode::external) return outside_context(config);
  if (config.launch.mode == LaunchMode::processes && std::getenv(rank_variable)) return child_place();
  return std::nullopt;
}

std::shared_ptr<comm::Rendezvous> rendezvous_of(const RankContext& place, const Config& config) {
  if (site::launch_mode(config) == LaunchMode::external)
    return open_rendezvous(config, place.rank, place.size, site::outside_place(config).job);
  std::vector<ConfigProblem> problems;
  const int memory = site::number_of(rendezvous_variable, problems);
  if (!problems.empty()) throw ConfigError(std::move(problems));
  auto rendezvous = comm::make_memory_rendezvous(memory);
  ::fcntl(memory, F_SETFD, FD_CLOEXEC);  // left open for this process alone
  return rendezvous;
}

std::optional<RankContext> rank_from_environment(const Config& config, std::shared_ptr<comm::Rendezvous> joined) {
  std::optional<RankContext> context = place_from_environment(config);
  if (!context) return context;
  context->device = site::launch_mode(config) == LaunchMode::external
                        ? external_device(config, context->local_rank)
                        : site::placed_device(config, site::choose_devices(config).kind, context->rank);
  context->rendezvous = joined ? std::move(joined) : rendezvous_of(*context, config);
  return context;
}

}  // namespace plait::launch
