#include "launch/launch_plan.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "core/error.h"
#include "core/milliseconds_of.h"
#include "core/pair_transport.h"
#include "core/plural.h"
#include "core/units.h"
#include "launch/agreement.h"
#include "launch/job_planning.h"
#include "launch/launch_environment.h"
#include "launch/rank_binding.h"

namespace plait::launch {
namespace {

[[noreturn]] void refuse_ranks(int ranks, const std::string& rule) {
  throw ConfigError({{"launch.ranks", std::to_string(ranks), rule, "", 0}});
}

void check_layout(const Config& config, int ranks) {
  const AxisSizes& sizes = config.parallel.size;
  const AxisSet given = AxisSet::all().without(rest_axis);
  if (const std::int64_t all = product(sizes); all > 0 && ranks != all)
    refuse_ranks(ranks, "must be " + axis_product() + " = " + std::to_string(all));
  if (const std::int64_t others = product(sizes, given); ranks % others != 0)
    refuse_ranks(ranks, "must be a multiple of " + axis_product(given) + " = " + std::to_string(others));
}

// Devices by rank. Ranks on CPUs have no place of their own.
std::vector<Device> placed(const Config& config, const DeviceChoice& devices, int ranks) {
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
  for (int rank = 0; rank < ranks; ++rank) by_rank.push_back(placed_device(config, devices.kind, rank));
  return by_rank;
}

std::string explain(const LaunchPlan& plan, const DeviceChoice& devices) {
  const bool one = plan.ranks == 1;
  std::string text = std::to_string(plan.ranks) + (one ? " rank " : " ranks ");
  switch (plan.mode) {
    case LaunchMode::threads: text += one ? "as a thread" : "as threads"; break;
    case LaunchMode::processes: text += one ? "as a process" : "as processes"; break;
    case LaunchMode::external: text += "started from outside"; break;
  }
  if (devices.kind == DeviceKind::host) return text + " on the CPU: " + devices.reason;
  text += plan.devices.size() == 1 ? " on " : " on GPUs ";
  text += to_string(plan.devices.front());
  if (plan.devices.size() > 1) text += " to " + to_string(plan.devices.back());
  return text + " (" + device_name(plan.devices.front()) + "): " + devices.reason;
}

// Printed by one of the started processes, so that it appears once.
std::string outside_warning(const LaunchPlan& plan) {
  const std::optional<OutsideRank> outside = started_from_outside();
  if (plan.this_rank || !outside || outside->rank != 0) return "";
  return "warning: " + outside->launcher + " has started " + std::to_string(outside->size) +
         " processes, and each is a whole job of its own, because launch.mode is " + to_string(plan.mode) +
         "; auto or external makes them the ranks of one";
}

}  // namespace

void check_host_ranks(int ranks) {
  if (ranks <= limits::host_ranks.most) return;
  refuse_ranks(ranks, "must be at most " + std::to_string(limits::host_ranks.most) +
                          " on one host; ranks on several are started from outside (launch.mode: external)");
}

DeviceChoice choose_devices(const Config& config) {
  const std::string& wish = config.launch.device;
  const bool fp64 = config.precision.compute == "fp64";
  if (wish == "cpu") return {DeviceKind::host, 0, "launch.device is cpu"};
  if (fp64 && wish == "cuda") {
    throw ConfigError({{"precision.compute", "fp64", "runs on the CPU only; launch.device is cuda", "", 0}});
  }
  if (fp64) return {DeviceKind::host, 0, "precision.compute fp64 runs on the CPU only"};
  std::string why;
  const int count = cuda_device_count(&why);
  if (wish == "cuda") {
    if (count == 0) throw ConfigError({{"launch.device", wish, "needs a GPU, but none can be used: " + why, "", 0}});
    return {DeviceKind::cuda, count, "launch.device is cuda"};
  }
  if (count == 0) return {DeviceKind::host, 0, why};
  return {DeviceKind::cuda, count, "launch.device auto takes GPUs where there are any"};
}

void check_device_rules(const Config& config, DeviceKind kind, const std::string& why) {
  std::vector<ConfigProblem> problems = problems_on(config, kind == DeviceKind::cuda ? "cuda" : "cpu");
  for (ConfigProblem& problem : problems) problem.rule += " (" + why + ")";
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

int rank_count(const Config& config, const DeviceChoice& devices) {
  if (config.launch.ranks > 0) return static_cast<int>(config.launch.ranks);
  AxisSizes sizes = config.parallel.size;
  if (sizes[rest_axis] == 0) {
    if (devices.kind == DeviceKind::cuda) return devices.count;
    sizes[rest_axis] = 2;
  }
  return static_cast<int>(product(sizes));
}

int places_of_pairs(const Config& config, const DeviceChoice& devices, int ranks) {
  const bool outside = launch_mode(config) == LaunchMode::external && config.placement.devices.empty();
  return devices.kind == DeviceKind::host || outside ? ranks : devices.count;
}

void check_pairs(const Config& config, const DeviceChoice& devices, int ranks) {
  const int places = places_of_pairs(config, devices, ranks);
  const bool of_gpus = devices.kind == DeviceKind::cuda && launch_mode(config) != LaunchMode::external;
  std::vector<ConfigProblem> problems;
  for (const std::string& text : config.comm.p2p_pairs) {
    const std::optional<PairTransport> pair = pair_transport(text);
    if (!pair || pair->b < places) continue;
    problems.push_back({"comm.p2p_pairs", text,
                        of_gpus ? "names a GPU that does not exist; this machine has " + plural(places, "GPU") + ", from 0"
                                : "names a rank that does not exist; the job has " + plural(places, "rank") + ", from 0",
                        "", 0});
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

double memory_of_rank(const Config& config, DeviceKind kind, int ranks) {
  if (config.launch.memory_gib > 0) return config.launch.memory_gib * gib;
  const bool shared = kind == DeviceKind::host && launch_mode(config) != LaunchMode::external;
  return shared ? static_cast<double>(memory_size({DeviceKind::host, 0})) / ranks : 0;
}

namespace {

LaunchPlan made_plan(const Config& config, std::shared_ptr<comm::Rendezvous> joined) {
  require_settled(config, "what is started here");
  LaunchPlan plan;
  plan.mode = launch_mode(config);
  const DeviceChoice devices = choose_devices(config);
  check_device_rules(config, devices.kind, devices.reason);
  plan.this_rank = rank_from_environment(config, std::move(joined));
  if (plan.mode == LaunchMode::external) {
    plan.ranks = plan.this_rank->size;
    plan.devices = {plan.this_rank->device};
    if (config.launch.ranks > 0 && config.launch.ranks != plan.ranks) {
      refuse_ranks(static_cast<int>(config.launch.ranks),
                   "the outside launcher started " + std::to_string(plan.ranks) + " ranks");
    }
  } else {
    plan.ranks = rank_count(config, devices);
    if (devices.kind == DeviceKind::cuda && plan.ranks > devices.count) {
      refuse_ranks(plan.ranks, "there are only " + std::to_string(devices.count) +
                                   " GPUs, and each rank needs its own; ask for fewer, or for launch.device: cpu");
    }
    check_host_ranks(plan.ranks);
    plan.devices = placed(config, devices, plan.ranks);
  }
  check_layout(config, plan.ranks);
  plan.peer_access = config.comm.peer_access;
  plan.warning = outside_warning(plan);
  if (plan.mode == LaunchMode::processes && plan.this_rank) {
    require(plan.this_rank->size == plan.ranks, "the launcher and its child count different numbers of ranks");
  }
  plan.bind = config.launch.bind;
  plan.binding = binding_text(plan.devices, plan.bind);
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
