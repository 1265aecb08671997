// One rank's engine: its memory, its communicator and its interpreter, in the order in which they have to live and die.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "comm/p2p/facts.h"
#include "launch/rank_context.h"
#include "launch/watchdog.h"
#include "runtime/interpreter.h"
#include "runtime/rank_life.h"

namespace plait::train {

// Planned and actual memory use.
struct MemoryReport {
  std::size_t planned_bytes = 0;    // by the plan: one arena, and receive buffers
  std::size_t allocated_bytes = 0;  // by plait on the device, at its peak, including its links
  std::size_t device_bytes = 0;     // in use on the device, reported by the driver (all processes); 0 on the host
  std::string to_string(int rank) const;
};

class Session {
 public:
  // Collective over all ranks of the job. `vocab`: of the tokenizer. ConfigError, before anything is made, for a plan that
  // needs more memory than this rank has: all of a GPU, or its share of a host's memory among the ranks that are CPUs there.
  Session(const Config& config, const parallel::Decision& decision, std::int64_t vocab, launch::RankContext& rank);
  // With an existing plan. `memory_limit`: bytes of its device that this rank may use.
  Session(parallel::RankPlan plan, runtime::GroupOptions groups, launch::RankContext& rank,
          std::size_t memory_limit = DeviceMemory::no_limit);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  // Runs `work`, the rank's part of the job, once, and returns its result. The rank's life ends with it: successfully, or with
  // the exception of `work` (runtime/rank_life.h). A session that is destroyed without running has failed.
  template <typename Work>
  std::invoke_result_t<Work> run(Work&& work) {
    const Retirement retirement(*life_);
    return life_->run(std::forward<Work>(work), [this] { interpreter_->synchronize_aborted(); });
  }

  runtime::Interpreter& interpreter() { return *interpreter_; }
  const parallel::RankPlan& plan() const { return interpreter_->plan(); }
  MemoryReport memory_report() const;
  // Reports of the links that this rank sends on.
  const std::vector<comm::p2p::LinkReport>& links() const { return links_; }
  // Reports of the links within a group whose collectives use links.
  const std::vector<comm::p2p::LinkReport>& links_within(const parallel::GroupStream& group) { return links_within_[group]; }
  // The ways of all communication: gather_paths() (report/path_table.h). On rank 0 of more than one; null elsewhere.
  const nlohmann::ordered_json& paths() const { return paths_; }

 private:
  // `facts`: nullopt if the rank is alone.
  Session(parallel::RankPlan plan, const runtime::GroupOptions& options, launch::RankContext& rank, std::size_t memory_limit,
          const std::optional<comm::p2p::JobFacts>& facts);

  struct Retirement {
    explicit Retirement(runtime::RankLife& l) : life(l) {}
    ~Retirement() { life.retire(); }
    runtime::RankLife& life;
  };

  std::optional<launch::Watchdog> watchdog_;  // destroyed last: it ends the process when the rest cannot
  std::shared_ptr<runtime::RankLife> life_;
  DeviceMemory memory_;
  std::vector<comm::p2p::LinkReport> links_;
  std::map<parallel::GroupStream, std::vector<comm::p2p::LinkReport>> links_within_;
  nlohmann::ordered_json paths_;
  std::unique_ptr<runtime::Interpreter> interpreter_;
};

// The plan that the rank carries out.
parallel::RankPlan training_plan(const Config& config, const parallel::Decision& decision, std::int64_t vocab,
                                 const launch::RankContext& rank);

// The configuration's options for this rank's communicators.
runtime::GroupOptions group_options(const Config& config, Device device);

// FLOP/s of one device that count as an MFU of 1: log.peak_tflops, else the data sheet's, mixing both kinds of products with
// FP8 (model/model_flops.h). nullopt for an unknown device.
std::optional<double> peak_flops(const Config& config, const parallel::RankPlan& plan, Device device);

// Optimizer settings of update number `update` (1-based) at learning rate `lr`.
runtime::UpdateSettings update_settings(const Config& config, std::int64_t update, double lr);

}  // namespace plait::train
