// The ranks that a bench of communication runs on: one per GPU, or some that share the CPUs.
#pragma once

#include <chrono>
#include <memory>
#include <string>

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

// ConfigError for fewer than two ranks, naming what the machine has.
launch::LaunchPlan plan_bench(const BenchRanks& ranks);

// All ranks of the job as one group, which is aborted when another rank fails. `group` says what is special about it (name,
// timeout, max_ctas); rank, size and device are the job's. Collective.
std::shared_ptr<comm::Communicator> join_all(launch::RankContext& rank, comm::GroupSpec group);

// How long a rank waits for others that measure: nothing but an abort should end it.
inline constexpr std::chrono::hours turn_timeout{24};

// Blocks until `event` is complete. CommError naming `what` after `timeout`: a message that never arrives ends the bench.
void synchronize_within(const Event& event, std::chrono::milliseconds timeout, const std::string& what);

// Blocks until the stream is empty, whatever has failed on it: before links and communicators that it uses go. They have been
// aborted.
void synchronize_aborted(StreamRef stream) noexcept;

// "2 x NVIDIA H200, one thread each".
std::string describe(const launch::LaunchPlan& plan);

}  // namespace plait::bench
