// Settles a job before its launch: one process plans what the configuration leaves open, and every rank runs the result.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "comm/rendezvous.h"
#include "config/config.h"
#include "core/file.h"
#include "parallel/decision.h"

namespace plait::launch {

// The input of a job's launch. A job is planned once: `plan` is what runs, what plan.json holds, and what the measurements are
// compared with.
struct SettledJob {
  Config config;                // leaves nothing open; GPUs are placed (placement.strategy explicit)
  parallel::Decision decision;  // for this machine, the same on all ranks
  nlohmann::ordered_json plan;  // as written by plan/report.h; with an outside launcher, null on all ranks but rank 0
  std::string note;             // a line about the decisions; "" if there were none
};

// Like plan_on_site on this machine, except that a job that leaves nothing open may run without a prediction. `joined`: the
// result of join_job() (agreement.h). With an outside launcher rank 0 sends the others the passes of a planned schedule, so
// that all of them run the same: CommError if it does not. `vocab`: if known; otherwise reading it may take training a
// tokenizer. `decision`: as it was before, of which the passes stay.
SettledJob settle(const Config& config, const parallel::Decision& decision,
                  const std::shared_ptr<comm::Rendezvous>& joined = nullptr, std::optional<std::int64_t> vocab = std::nullopt);

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

// The first step of a command that runs a job: joins the other ranks (agreement.h) and settles `asked()`, once in a job; a
// process that is passed a settled job does not call `asked`. `joined` is called before planning, which may take a while
// during which others wait for this process.
struct BegunJob {
  SettledJob job;  // `note` is empty in a process that was passed the job
  std::shared_ptr<comm::Rendezvous> rendezvous;
  std::unique_ptr<PassedJob> passed;
};
BegunJob begin_job(const std::function<parallel::DecidedConfig()>& asked, const std::function<void()>& joined = [] {});

// ConfigError naming the keys that `config` leaves to the planner. For commands that do not plan, such as "plait verify".
void require_settled(const Config& config, const std::string& command);

}  // namespace plait::launch
