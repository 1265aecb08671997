// The ranks that a bench of communication runs on: one per GPU, or some that share the CPUs.
#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/make_communicator.h"
#include "core/stream.h"
#include "launch/launch.h"

namespace plait::bench {

struct BenchRanks {
  std::int64_t ranks = 0;                     // 0: all GPUs, or 2 on CPUs
  bool processes = false;                     // instead of threads
  std::string device = "auto";                // auto | cpu | cuda
  std::chrono::milliseconds timeout{60'000};  // for one measurement
};

// What a bench hands out.
struct BenchOutput {
  std::function<void(const nlohmann::ordered_json&)> result;  // once, on rank 0
  std::function<void(const std::string&)> note;               // a line for people, on rank 0: progress, and what was left out
};

// ConfigError for fewer than two ranks, naming what the machine has.
launch::LaunchPlan plan_bench(const BenchRanks& ranks);

// Runs `measure` on all ranks and hands out what it returns on rank 0. `argv`: of this program, for ranks that are processes.
// Returns the exit status.
int run_bench(const launch::LaunchPlan& plan, const std::vector<std::string>& argv, const BenchOutput& output,
              const std::function<nlohmann::ordered_json(launch::RankContext&)>& measure);

// What every result begins with: {"benchmark", "mode", "ranks", "device", "backend"}.
nlohmann::ordered_json bench_head(const std::string& benchmark, const launch::LaunchPlan& plan,
                                  const launch::RankContext& rank);
// The same as a table's first words: "# 2 x NVIDIA H200 as threads, NCCL".
std::string head_text(const nlohmann::ordered_json& result);

// `shared`, a link or a communicator, is aborted with the rank, as long as there is one.
template <typename Shared>
void abort_with_rank(launch::RankContext& rank, const std::shared_ptr<Shared>& shared) {
  rank.life->on_abort([weak = std::weak_ptr(shared)] {
    if (const auto alive = weak.lock()) alive->abort();
  });
}

// All ranks of the job as one group, which is aborted with the rank. `group` says what is special about it (name,
// timeout, max_ctas); rank, size and device are the job's. Collective.
std::shared_ptr<comm::Communicator> join_all(launch::RankContext& rank, comm::GroupSpec group,
                                             const comm::CommunicatorMaker& make = comm::make_communicator);

// How much memory every rank has free: the least of all, and of what CPU ranks share, a share. Collective over all ranks.
std::size_t least_free_bytes(const launch::RankContext& rank, comm::Meeting& meeting);

// Blocks until `event` is complete. CommError naming `what` after `timeout`: a message that never arrives ends the bench.
void synchronize_within(const Event& event, std::chrono::milliseconds timeout, const std::string& what);

// Blocks until the stream is empty, whatever has failed on it: before links and communicators that it uses go. They have been
// aborted.
void synchronize_aborted(StreamRef stream) noexcept;

// What `measure` returns. If it throws, the rank is aborted, and the streams are empty before what they use goes.
template <typename Measure>
auto run_on(std::initializer_list<StreamRef> streams, launch::RankContext& rank, Measure measure) {
  return rank.life->run(measure, [&] {
    for (const StreamRef stream : streams) synchronize_aborted(stream);
  });
}

// "2 x NVIDIA H200, one thread each".
std::string describe(const launch::LaunchPlan& plan);

}  // namespace plait::bench
