#include "bench/bench_ranks.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdint>
#include <thread>

#include "comm/meeting.h"
#include "core/error.h"
#include "launch/agreement.h"
#include "launch/launch_environment.h"
#include "site/outside_launcher.h"

namespace plait::bench {

namespace {

// Leaves out what may differ from host to host: the program's own name and the address that it listens on.
std::string command_of(const std::vector<std::string>& argv) {
  std::string text;
  for (std::size_t n = 1; n < argv.size(); ++n) {
    const bool address = argv[n].starts_with("--interface");
    if (!address) text += (text.empty() ? "" : " ") + argv[n];
    if (address && argv[n].find('=') == std::string::npos) ++n;
  }
  return text;
}

std::shared_ptr<comm::Rendezvous> join(const Config& config, const BenchRanks& ranks, const std::vector<std::string>& argv) {
  if (ranks.rendezvous.empty()) {
    throw ConfigError(
        {{"--rendezvous", "",
          site::started_from_outside()->launcher +
              " has started this process as one of several ranks, which need a directory that all of them share, or "
              "tcp (as launch.rendezvous)",
          "", 0}});
  }
  std::optional<launch::RankContext> place = launch::place_from_environment(config);
  place->rendezvous = launch::rendezvous_of(*place, config);
  std::vector<launch::Fact> facts = launch::facts_of(config, parallel::Decision{});
  facts.push_back({"the command line", command_of(argv)});
  launch::agree(*place, facts, ranks.timeout, ranks.rendezvous);
  return place->rendezvous;
}

}  // namespace

launch::LaunchPlan plan_bench(const BenchRanks& ranks, const std::vector<std::string>& argv) {
  Config config;
  if (ranks.ranks > 0) config.launch.ranks = ranks.ranks;
  const bool external = !ranks.processes && site::started_from_outside();
  config.launch.mode = external ? LaunchMode::external : ranks.processes ? LaunchMode::processes : LaunchMode::threads;
  config.launch.device = ranks.device;
  config.launch.rendezvous = ranks.rendezvous;
  config.comm.interface = ranks.interface;
  config.comm.timeout_s = std::chrono::duration<double>(ranks.timeout).count();
  config.comm.peer_access = ranks.peer_access;
  launch::LaunchPlan plan = launch::plan_launch(config, external ? join(config, ranks, argv) : nullptr);
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
  return fmt::format("# {} × {} as {}, {}", result.at("ranks").get<int>(), text("device"), text("mode"), text("backend"));
}

std::string library_name(const nlohmann::ordered_json& result) {
  const auto backend = result.at("backend").get<std::string>();
  return backend.substr(0, backend.find(' '));
}

std::string transport_name(const nlohmann::ordered_json& method, const std::string& library) {
  const auto transport = method.at("transport").get<std::string>();
  return transport == to_string(Transport::nccl) ? library : transport;
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
  const char* each = plan.mode == LaunchMode::threads ? "one thread each" : "one process each";
  return std::to_string(plan.ranks) + " × " + device_name(plan.devices.front()) + ", " + each;
}

}  // namespace plait::bench
