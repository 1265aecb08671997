// Plans a configuration on a machine: this one, or one that is described. `plait plan` shows that plan; `plait train` runs it
// and compares it with its measurements.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "config/config.h"
#include "core/task_progress.h"
#include "plan/planner.h"
#include "plan/report.h"
#include "topology/assumed_topology.h"

namespace plait::site {

// The planning target, if it is not this machine.
struct PlanningWish {
  int gpus = 0;             // number of GPUs, regardless of the machine; 0: from the configuration or the machine
  std::string topology;     // "live" or a file; empty: placement.topology
  std::string device;       // a name for plan::nominal_profile(); empty: the machine's, or H200 if it has no GPU
  std::string calibration;  // a file of `plait bench calibrate`; empty: the one kept for this machine, or nominal figures
  int top = 5;
  bool what_if = true;
  ProgressCallback progress = {};
  // The job will run on this machine, on the devices that the configuration gives it. If those are CPUs, GPUs do not count.
  bool runs_here = false;
  bool in_order = false;  // rank r on GPU r, unless placement.devices says otherwise
  // The assumed connection of `gpus` GPUs: hosts of eight, or fewer if there are fewer. `hosts` follows.
  std::optional<topology::ReplicateRequest> network = {};
  int gpus_per_host = 0;  // with `network`; 0: eight
};

// This machine with only the first `gpus` GPUs, numbered as in CUDA: all that this process sees. ConfigError if discovery does
// not find them all.
topology::Graph live_graph(int gpus);

// The value for parallel::Decision::collectives, which comm.exchanges and comm.reductions: auto stand for. Links if all GPUs of
// `fabric` are on one host and every two of them are joined by NVLink (for the consequences see parallel::choose_exchanges and
// choose_reductions). nullopt otherwise, and if the configuration sets both ways, or the links' transports.
std::optional<CollectiveWay> collective_way(const Config& config, topology::Fabric& fabric, DeviceKind kind);

// The place where a job is to run, with the known facts about it.
struct JobSite {
  plan::Machine machine;
  std::shared_ptr<topology::Fabric> fabric;
  DeviceKind kind = DeviceKind::cuda;
  int ranks = 1;
  std::string topology;  // "this machine", "assumed: ...", or a file's name
  plan::PlacementOptions placement;
  std::optional<CollectiveWay> collectives;  // for the job's decision
  plan::Site site() const { return {.machine = machine, .fabric = fabric.get(), .kind = kind}; }
};

// For a configuration that may leave something open. ConfigError if the topology, device or calibration is not available.
JobSite find_site(const Config& config, std::int64_t vocab, const PlanningWish& wish = {});

struct SitedPlan {
  plan::PlannedJob job;
  plan::Machine machine;
  plan::PlanContext context;
  DeviceKind kind = DeviceKind::cuda;
  int ranks = 1;
  std::shared_ptr<topology::Fabric> fabric;
};

// Decides everything the configuration leaves open; if that is nothing, places the job and predicts its time. `decision`:
// as it was before, of which the passes stay. ConfigError if no plan can run, or if the topology, device or calibration is not
// available.
SitedPlan plan_on_site(const Config& config, const parallel::Decision& decision, std::int64_t vocab,
                       const PlanningWish& wish = {});

}  // namespace plait::site
