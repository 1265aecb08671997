#include "launch/launch_plan.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "config/job_rules.h"
#include "core/error.h"
#include "core/format.h"
#include "core/units.h"
#include "launch/agreement.h"
#include "launch/launch_environment.h"
#include "launch/settled_job.h"
#include "site/devices.h"
#include "site/outside_launcher.h"
#include "site/rank_binding.h"

namespace plait::launch {
namespace {

[[noreturn]] void refuse_ranks(int ranks, const std::string& rule) {
  throw ConfigError({{"launch.ranks", std::to_string(ranks), rule, "", 0}});
}

// Devices by rank. Ranks on CPUs have no place of their own.
std::vector<Device> placed(const Config& config, const site::DeviceChoice& devices, int ranks) {
  const std::vector<std::int64_t>& given = config.placement.devices;
  if (devices.kind == DeviceKind::cuda && !given.empty()) {
    if (static_cast<int>(given.size()) != ranks) {
      throw ConfigError({{"placement.devices", std::to_string(given.size()) + " GPUs",
                          "must be one for each of the " + std::to_string(ranks) + " ranks", "", 0}});
    }
    if (const auto last = *std::max_element(given.begin(), given.end()); last >= devices.count) {
      throw ConfigError({{"placement.devices", std::to_string(last),
                          "is not a GPU of this machine, which has " + std::to_string(devices.count), "", 0}});
    }
  }
  std::vector<Device> by_rank;
  for (int rank = 0; rank < ranks; ++rank) by_rank.push_back(site::placed_device(config, devices, rank, ranks));
  return by_rank;
}

std::string explain(const LaunchPlan& plan, const site::DeviceChoice& devices) {
  const bool one = plan.ranks == 1;
  std::string text = std::to_string(plan.ranks) + (one ? " rank " : " ranks ");
  switch (plan.mode) {
    case LaunchMode::threads: text += one ? "as a thread" : "as threads"; break;
    case LaunchMode::processes: text += one ? "as a process" : "as processes"; break;
    case LaunchMode::external: text += "started from outside"; break;
  }
  if (devices.kind == DeviceKind::host) return text + " on the CPU: " + devices.reason;
  const bool several = plan.devices.front() != plan.devices.back();
  text += (several ? " on GPUs " : " on ") + to_string(plan.devices.front());
  if (several) text += " to " + to_string(plan.devices.back());
  if (const auto sharing = std::ranges::count(plan.devices, plan.devices.front()); sharing > 1)
    text += fmt::format(", {} to a GPU, so that speeds say nothing", sharing);
  return text + " (" + device_name(plan.devices.front()) + "): " + devices.reason;
}

// Printed by one of the started processes, so that it appears once.
std::string outside_warning(const LaunchPlan& plan) {
  const std::optional<site::OutsideRank> outside = site::started_from_outside();
  if (plan.this_rank || !outside || outside->rank != 0) return "";
  return "warning: " + outside->launcher + " has started " + std::to_string(outside->size) +
         " processes, and each is a whole job of its own, because launch.mode is " + to_string(plan.mode) +
         "; auto or external makes them the ranks of one";
}

LaunchPlan made_plan(const Config& config, std::shared_ptr<comm::Rendezvous> joined) {
  require_settled(config, "what is started here");
  LaunchPlan plan;
  plan.mode = site::launch_mode(config);
  const site::DeviceChoice devices = site::choose_devices(config);
  site::check_device_rules(config, devices.kind, devices.reason);
  plan.this_rank = rank_from_environment(config, std::move(joined));
  if (plan.mode != LaunchMode::threads && config.launch.may_share_devices()) {
    throw ConfigError({{"launch.ranks_per_device", to_string(config.launch.ranks_per_device),
                        "needs ranks that are threads of one process (launch.mode=threads); here they are " +
                            std::string(plan.mode == LaunchMode::external ? "started from outside" : "processes"),
                        "", 0}});
  }
  if (plan.mode == LaunchMode::external) {
    plan.ranks = plan.this_rank->size;
    plan.devices = {plan.this_rank->device};
    if (config.launch.ranks.value_or(plan.ranks) != plan.ranks) {
      refuse_ranks(static_cast<int>(config.launch.ranks),
                   "the outside launcher started " + std::to_string(plan.ranks) + " ranks");
    }
  } else {
    plan.ranks = site::rank_count(config, devices);
    const int to_a_device = site::ranks_per_device(config, devices, plan.ranks);
    if (devices.kind == DeviceKind::cuda && plan.ranks > devices.count * to_a_device) {
      refuse_ranks(
          plan.ranks,
          "this machine has only " + plural(devices.count, "GPU") +
              (to_a_device == 1 ? ", and each rank needs its own; ask for fewer, for launch.device: cpu, or, to prove a "
                                  "layout rather than to train, for launch.ranks_per_device: auto"
                                : fmt::format(", and each takes {} ranks (launch.ranks_per_device)", to_a_device)));
    }
    site::check_host_ranks(plan.ranks);
    plan.devices = placed(config, devices, plan.ranks);
  }
  require_rules({.size = config.parallel.known_sizes(), .ranks = plan.ranks});
  plan.peer_access = config.comm.peer_access;
  plan.warning = outside_warning(plan);
  if (plan.mode == LaunchMode::processes && plan.this_rank) {
    require(plan.this_rank->size == plan.ranks, "the launcher and its child count different numbers of ranks");
  }
  plan.bind = config.launch.bind;
  plan.binding = site::binding_text(plan.devices, plan.bind);
  plan.explanation = explain(plan, devices) + (plan.binding.empty() ? "" : "; " + plan.binding);
  // A rank that cannot end by itself must not keep the job past the time limit.
  using std::chrono::milliseconds;
  plan.grace = std::clamp(milliseconds_of(config.comm.timeout_s) / 5, milliseconds(500), plan.grace);
  return plan;
}

}  // namespace

LaunchPlan plan_launch(const Config& config, std::shared_ptr<comm::Rendezvous> joined) {
  return or_end_job(joined, config, [&] { return made_plan(config, joined); });
}

}  // namespace plait::launch
