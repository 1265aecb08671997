// Turns a configuration into a plan on a machine. `plait plan` shows that plan; `plait train` runs it and compares it with its
// measurements.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "comm/rendezvous.h"
#include "core/config.h"
#include "core/file_descriptor.h"
#include "plan/planner.h"
#include "plan/report.h"
#include "topology/replicate.h"

namespace plait::launch {

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

// The place where a job is to run, with the known facts about it.
struct JobSite {
  plan::Machine machine;
  std::shared_ptr<topology::Fabric> fabric;
  DeviceKind kind = DeviceKind::cuda;
  int ranks = 1;
  std::string topology;  // "this machine", "assumed: ...", or a file's name
  plan::PlacementOptions placement;
  std::optional<CollectiveWay> collectives_here;  // comm.collectives_here for the plan
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

// Decides everything the configuration leaves open; if that is nothing, places the job and predicts its time. ConfigError if no
// plan can run, or if the topology, device or calibration is not available.
SitedPlan plan_on_site(const Config& config, std::int64_t vocab, const PlanningWish& wish = {});

// The input of a job's launch. A job is planned once: `plan` is what runs, what plan.json holds, and what the measurements are
// compared with.
struct SettledJob {
  Config config;                // leaves nothing open; GPUs are placed (placement.strategy explicit)
  nlohmann::ordered_json plan;  // as written by plan/report.h; with an outside launcher, null on all ranks but rank 0
  std::string note;             // a line about the decisions; "" if there were none
};

// Like plan_on_site on this machine, except that a job that leaves nothing open may run without a prediction. `joined`: the
// result of join_job() (agreement.h). With an outside launcher rank 0 sends the others the passes of a planned schedule, so
// that all of them run the same: CommError if it does not. `vocab`: if known; otherwise reading it may take training a
// tokenizer.
SettledJob settle(const Config& config, const std::shared_ptr<comm::Rendezvous>& joined = nullptr,
                  std::optional<std::int64_t> vocab = std::nullopt);

// Rank processes do not plan for themselves, since two of them could decide differently. Processes that this one starts during
// the object's life are passed `job`, in memory that they inherit; ranks that are threads need none. One object at a time.
class PassedJob {
 public:
  explicit PassedJob(const SettledJob& job);
  ~PassedJob();
  PassedJob(const PassedJob&) = delete;
  PassedJob& operator=(const PassedJob&) = delete;

 private:
  FileDescriptor memory_;
};

// The first step of a command that runs a job: joins the other ranks (agreement.h) and settles `config()`, once in a job; a
// process that is passed a settled job does not call `config`. `joined` is called before planning, which may take a while
// during which others wait for this process.
struct BegunJob {
  SettledJob job;  // `note` is empty in a process that was passed the job
  std::shared_ptr<comm::Rendezvous> rendezvous;
  std::unique_ptr<PassedJob> passed;
};
BegunJob begin_job(const std::function<Config()>& config, const std::function<void()>& joined = [] {});

// ConfigError naming the keys that `config` leaves to the planner. For commands that do not plan, such as "plait verify".
void require_settled(const Config& config, const std::string& command);

}  // namespace plait::launch
