// One rank's engine: its memory, its communicator and its interpreter, in the order in which they have to live and die.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/launch.h"
#include "launch/watchdog.h"
#include "runtime/interpreter.h"

namespace plait::train {

// What the memory plan said and what the device says.
struct MemoryReport {
  std::size_t planned_bytes = 0;    // the plan: one arena, and what messages arrive in
  std::size_t allocated_bytes = 0;  // by plait on the device, at its peak, by its links too
  std::size_t device_bytes = 0;     // in use on the device, by the driver's account (all processes); 0 on the host
  std::string to_string() const;
};

class Session {
 public:
  // Collective over all ranks of the job. `vocab`: of the tokenizer.
  Session(const Config& config, std::int64_t vocab, launch::RankContext& rank);
  // With a plan made already.
  Session(parallel::RankPlan plan, runtime::GroupOptions groups, launch::RankContext& rank);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  runtime::Interpreter& interpreter() { return *interpreter_; }
  const parallel::RankPlan& plan() const { return interpreter_->plan(); }
  MemoryReport memory_report() const;
  // Of the links that this rank sends on.
  const std::vector<comm::p2p::LinkReport>& links() const { return links_; }

 private:
  std::optional<launch::Watchdog> watchdog_;  // the last to go: it ends the process when the rest cannot
  const int exceptions_at_start_;
  std::shared_ptr<std::atomic<bool>> ended_from_outside_ =
      std::make_shared<std::atomic<bool>>(false);  // not by an error of its own
  DeviceMemory memory_;
  std::vector<comm::p2p::LinkReport> links_;
  std::unique_ptr<runtime::Interpreter> interpreter_;
};

// What the configuration says about this rank's communicators.
runtime::GroupOptions group_options(const Config& config, Device device);

// Optimizer settings of update number `update` (1-based) at learning rate `lr`.
runtime::UpdateSettings update_settings(const Config& config, std::int64_t update, double lr);

}  // namespace plait::train
