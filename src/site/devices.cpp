#include "site/devices.h"

#include <optional>
#include <utility>
#include <vector>

#include "config/job_rules.h"
#include "config/pair_transport.h"
#include "core/error.h"
#include "core/format.h"
#include "core/limits.h"
#include "core/units.h"
#include "site/outside_launcher.h"

namespace plait::site {

int ranks_per_device(const Config& config, const DeviceChoice& devices, int ranks) {
  if (devices.kind == DeviceKind::host) return 1;
  if (!config.launch.ranks_per_device.is_auto()) return static_cast<int>(config.launch.ranks_per_device);
  return (ranks + devices.count - 1) / devices.count;
}

Device placed_device(const Config& config, const DeviceChoice& devices, int rank, int ranks) {
  const std::vector<std::int64_t>& given = config.placement.devices;
  const auto index = static_cast<std::size_t>(rank);
  const bool is_given = devices.kind == DeviceKind::cuda && index < given.size();
  const int to_a_device = ranks_per_device(config, devices, ranks);
  return {devices.kind, is_given ? static_cast<int>(given[index]) : rank / to_a_device, config.launch.may_share_devices()};
}

void check_host_ranks(int ranks) {
  if (ranks <= limits::host_ranks.most) return;
  throw ConfigError({{"launch.ranks", std::to_string(ranks),
                      "must be at most " + std::to_string(limits::host_ranks.most) +
                          " on one host; ranks on several are started from outside (launch.mode: external)",
                      "", 0}});
}

DeviceChoice choose_devices(const Config& config) {
  const std::string& wish = config.launch.device;
  const bool fp64 = config.precision.compute == "fp64";
  if (wish == "cpu") return {DeviceKind::host, 0, "launch.device is cpu"};
  if (wish == "cuda") require_rules({.device = DeviceKind::cuda, .compute = facts_of(config).compute});
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
  if (!config.launch.ranks.is_auto()) return static_cast<int>(config.launch.ranks);
  AxisSizes sizes = config.parallel.known_sizes();
  if (sizes[rest_axis] == 0) {
    if (devices.kind == DeviceKind::cuda) return devices.count;
    sizes[rest_axis] = 2;
  }
  return static_cast<int>(product(sizes));
}

int fixed_ranks(const Config& config) {
  return static_cast<int>(config.launch.ranks.value_or(product(config.parallel.known_sizes())));
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
  if (!config.launch.memory_gib.is_auto()) return config.launch.memory_gib * gib;
  const bool shared = kind == DeviceKind::host && launch_mode(config) != LaunchMode::external;
  return shared ? static_cast<double>(memory_size({DeviceKind::host, 0})) / ranks : 0;
}

}  // namespace plait::site
