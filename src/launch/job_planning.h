// From a configuration to a plan on a machine: what `plait plan` shows, what `plait train` runs and then holds its measurements
// against.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/config.h"
#include "plan/planner.h"
#include "plan/report.h"

namespace plait::launch {

// What to plan for, where that is not the machine at hand.
struct PlanningWish {
  int gpus = 0;             // this many GPUs, whatever the machine has; 0: what the configuration or the machine says
  std::string topology;     // "live" or a file; empty: placement.topology
  std::string device;       // as plan::nominal_profile() takes it; empty: that of the machine, H200 where it has no GPU
  std::string calibration;  // a file of `plait bench calibrate`; empty: the one kept for this machine, or nominal figures
  int top = 5;
  bool what_if = true;
  bool runs_here = false;  // on the devices that the configuration gives it on this machine: a topology of GPUs is none of CPUs
  bool in_order = false;   // rank r on GPU r, unless placement.devices says otherwise
};

struct SitedPlan {
  plan::PlannedJob job;
  plan::Machine machine;
  plan::PlanContext context;
  DeviceKind kind = DeviceKind::cuda;
  int ranks = 1;
  std::shared_ptr<topology::Fabric> fabric;
};

// Decides what the configuration leaves open; one that leaves nothing open is placed and predicted. ConfigError if nothing can
// run, or the topology, device or calibration cannot be had.
SitedPlan plan_on_site(const Config& config, std::int64_t vocab, const PlanningWish& wish = {});

// What a job is launched with. It is planned once: what `plan` says is what runs, is written to plan.json and is compared with
// what was measured.
struct SettledJob {
  Config config;                // nothing left to the planner, GPUs placed (placement.strategy explicit)
  nlohmann::ordered_json plan;  // as plan/report.h writes it; null on ranks of an outside launcher other than rank 0
  std::string note;             // a line about what was decided, "" where there was nothing to decide
};

// As plan_on_site on this machine. A job that leaves nothing open runs without a prediction where none can be had.
SettledJob settle(const Config& config);

// Rank processes do not plan for themselves, as two of them could come to different answers: the process that starts them tells
// them its own, by the environment. Nothing in a process that nobody told.
void tell_rank_processes(const SettledJob& job);
std::optional<SettledJob> settled_by_launcher();

// ConfigError naming what `config` leaves to the planner, for commands that do not ask it: "plait verify".
void require_settled(const Config& config, const std::string& command);

}  // namespace plait::launch
