#include "bench/bench_ranks.h"

#include <algorithm>
#include <thread>

#include "core/error.h"

namespace plait::bench {

launch::LaunchPlan plan_bench(const BenchRanks& ranks) {
  Config config;
  config.launch.ranks = ranks.ranks;
  config.launch.mode = ranks.processes ? "processes" : "threads";
  config.launch.device = ranks.device;
  launch::LaunchPlan plan = launch::plan_launch(config);
  if (plan.ranks < 2) {
    throw ConfigError({{"--ranks", std::to_string(plan.ranks),
                        "must be at least 2; a machine with one GPU can measure its CPUs: --device cpu", "", 0}});
  }
  return plan;
}

std::shared_ptr<comm::Communicator> join_all(launch::RankContext& rank, comm::GroupSpec group) {
  group.rank = rank.rank;
  group.size = rank.size;
  group.device = rank.device;
  std::shared_ptr<comm::Communicator> all = comm::make_communicator(group, *rank.rendezvous);
  rank.on_abort([weak = std::weak_ptr(all)] {
    if (const auto alive = weak.lock()) alive->abort();
  });
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

void synchronize_aborted(StreamRef stream) noexcept {
  try {
    stream.synchronize();
  } catch (const std::exception&) {
    return;  // the reason for the abort is on its way up already
  }
}

std::string describe(const launch::LaunchPlan& plan) {
  const char* each = plan.mode == launch::LaunchMode::processes ? "one process each" : "one thread each";
  return std::to_string(plan.ranks) + " x " + device_name(plan.devices.front()) + ", " + each;
}

}  // namespace plait::bench
