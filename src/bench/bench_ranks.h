// The ranks that a communication benchmark runs on: one per GPU, or a number that share the CPUs.
#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/stream.h"
#include "launch/launch.h"

namespace plait::bench {

struct BenchRanks {
  std::int64_t ranks = 0;                     // 0: all GPUs, or 2 on CPUs
  bool processes = false;                     // instead of threads
  std::string device = "auto";                // auto | cpu | cuda
  std::chrono::milliseconds timeout{60'000};  // for one measurement
  // The rendezvous of processes that an outside launcher has started: launch.rendezvous. They are then the ranks.
  std::string rendezvous = {};
  std::string interface = "127.0.0.1";                   // comm.interface
  PeerAccessUse peer_access = PeerAccessUse::automatic;  // comm.peer_access, as NCCL is told
};

// The destinations of a benchmark's results.
struct BenchOutput {
  std::function<void(const nlohmann::ordered_json&)> result;  // once, on rank 0
  std::function<void(const std::string&)> note;               // a line for people, on rank 0: progress, and skipped cases
};

// ConfigError for fewer than two ranks; it says how many devices the machine has. Under an outside launcher it is collective
// over the processes, which compare the command lines (`argv`) that they were started with, and called once in a process.
launch::LaunchPlan plan_bench(const BenchRanks& ranks, const std::vector<std::string>& argv);

// Runs `measure` on all ranks and passes rank 0's result to output.result. `argv` is this program's, for starting ranks that
// are processes. Returns the exit status.
int run_bench(const launch::LaunchPlan& plan, const std::vector<std::string>& argv, const BenchOutput& output,
              const std::function<nlohmann::ordered_json(launch::RankContext&)>& measure);

// The first members of every result: {"benchmark", "mode", "ranks", "device", "backend"}.
nlohmann::ordered_json bench_head(const std::string& benchmark, const launch::LaunchPlan& plan,
                                  const launch::RankContext& rank);
// The head as the first line of a table: "# 2 × NVIDIA H200 as threads, NCCL".
std::string head_text(const nlohmann::ordered_json& result);
// The communication library of a result: "Gloo" of "Gloo 0.5.0".
std::string library_name(const nlohmann::ordered_json& result);
// A table's name for a method's transport: the library's own messages have its name, since those of CPUs are not NCCL's.
std::string transport_name(const nlohmann::ordered_json& method, const std::string& library);

// `shared`, a link or a communicator, is aborted with the rank while it exists.
template <typename Shared>
void abort_with_rank(launch::RankContext& rank, const std::shared_ptr<Shared>& shared) {
  rank.life->on_abort([weak = std::weak_ptr(shared)] {
    if (const auto alive = weak.lock()) alive->abort();
  });
}

// Joins all ranks of the job into one group, which is aborted with the rank. `group` gives its special settings (name, timeout,
// max_ctas); rank, size and device are the job's. Collective.
std::shared_ptr<comm::Communicator> join_all(launch::RankContext& rank, comm::GroupSpec group,
                                             const comm::CommunicatorMaker& make = comm::make_communicator);

// Free memory in bytes that every rank can count on: the minimum over ranks. CPU ranks share one memory, so each counts on an
// equal part of it. Collective over all ranks.
std::size_t least_free_bytes(const launch::RankContext& rank, comm::Meeting& meeting);

// Blocks until `event` is complete. CommError naming `what` after `timeout`, so that a message that never arrives ends the
// benchmark.
void synchronize_within(const Event& event, std::chrono::milliseconds timeout, const std::string& what);

// Returns the result of `measure`. If it throws, the rank is aborted, and the streams are drained before the memory they use is
// freed.
template <typename Measure>
auto run_on(std::initializer_list<StreamRef> streams, launch::RankContext& rank, Measure measure) {
  return rank.life->run(measure, [&] {
    for (const StreamRef stream : streams) runtime::synchronize_aborted(stream);
  });
}

// "2 × NVIDIA H200, one thread each".
std::string describe(const launch::LaunchPlan& plan);

}  // namespace plait::bench
