// A training run, from configuration to the last checkpoint.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "launch/job_planning.h"
#include "launch/launch.h"

namespace plait::train {

struct TrainRequest {
  launch::SettledJob job;
  // A run directory, or one of its checkpoints; empty: a new run, from the seed or from train.init_from.
  std::filesystem::path resume;
  std::vector<std::string> argv;                  // how this program was started, for rank processes
  std::shared_ptr<comm::Rendezvous> joined = {};  // join_job() (launch/agreement.h), in a process that is one rank
};

// Launches the ranks and trains. Returns the program's exit status; throws what the first failing rank threw.
//
// A stop signal (launch/stop_signals.h) ends the run at the next boundary: after a step, within an evaluation (which is cut),
// or in the start-up. All ranks save what came since the last checkpoint, whatever checkpoint.every says; one line says where
// they stopped and how to go on, and the status is launch::stopped_status. A run that goes on from there ends as one that was
// never stopped, bit for bit. A run that has come to its last step is not stopped any more: it saves that step at once and ends
// as ever. Interrupted: a second signal ended it.
int train(const TrainRequest& request);

}  // namespace plait::train
