#include "bench/bench_ranks.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdint>
#include <thread>

#include "comm/meeting.h"
#include "core/error.h"

namespace plait::bench {

launch::LaunchPlan plan_bench(const BenchRanks& ranks) {
  Config config;
  config.launch.ranks = ranks.ranks;
  config.launch.mode = ranks.processes ? LaunchMode::processes : LaunchMode::threads;
  config.launch.device = ranks.device;
  launch::LaunchPlan plan = launch::plan_launch(config);
  if (plan.ranks < 2) {
    throw ConfigError({{"--ranks", std::to_string(plan.ranks),
                        "must be at least 2; a machine with one GPU can measure its CPUs: --device cpu", "", 0}});
  }
  return plan;
}

int run_bench(const launch::LaunchPlan& plan, const std::vector<std::string>& argv, const BenchOutput& output,
              const std::function<nlohmann::ordered_json(launch::RankContext&)>& measure) {
  return launch::launch(
      plan,
      [&](launch::RankContext& rank) {
        const nlohmann::ordered_json result = measure(rank);
        if (rank.is_main) output.result(result);
      },
      argv);
}

nlohmann::ordered_json bench_head(const std::string& benchmark, const launch::LaunchPlan& plan,
                                  const launch::RankContext& rank) {
  return {{"benchmark", benchmark},
          {"mode", to_string(plan.mode)},
          {"ranks", rank.size},
          {"device", device_name(rank.device)},
          {"backend", comm::backend_name(rank.device.kind)}};
}

std::string head_text(const nlohmann::ordered_json& result) {
  const auto text = [&](const char* key) { return result.at(key).get<std::string>(); };
  return fmt::format("# {} x {} as {}, {}", result.at("ranks").get<int>(), text("device"), text("mode"), text("backend"));
}

std::size_t least_free_bytes(const launch::RankContext& rank, comm::Meeting& meeting) {
  const std::size_t least = meeting.least("free", memory_info(rank.device).free_bytes);
  return rank.device.is_cuda() ? least : least / static_cast<std::size_t>(rank.size);
}

std::shared_ptr<comm::Communicator> join_all(launch::RankContext& rank, comm::GroupSpec group,
                                             const comm::CommunicatorMaker& make) {
  group.rank = rank.rank;
  group.size = rank.size;
  group.device = rank.device;
  std::shared_ptr<comm::Communicator> all = make(group, *rank.rendezvous);
  abort_with_rank(rank, all);
  return all;
}

void synchronize_within(const Event& event, std::chrono::milliseconds timeout, const std::string& what) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + timeout;
  auto pause = std::chrono::microseconds(20);
  while (!event.is_complete()) {
    if (Clock::now() > deadline) {
      throw CommError(what + ": not done after " + std::to_string(timeout.count()) +
                      " ms; a peer is gone, or --timeout is too short for this machine");
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(500));
  }
}

std::string describe(const launch::LaunchPlan& plan) {
  const char* each = plan.mode == LaunchMode::processes ? "one process each" : "one thread each";
  return std::to_string(plan.ranks) + " x " + device_name(plan.devices.front()) + ", " + each;
}

}  // namespace plait::bench
