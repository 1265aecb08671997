// A training run, from configuration to the last checkpoint.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "launch/launch.h"
#include "launch/settled_job.h"

namespace plait::train {

struct TrainRequest {
  launch::SettledJob job;
  // A run directory, or one of its checkpoints; empty: a new run, from the seed or from train.init_from.
  std::filesystem::path resume;
  std::vector<std::string> argv;                  // how this program was started, for rank processes
  std::shared_ptr<comm::Rendezvous> joined = {};  // join_job() (launch/agreement.h), in a process that is one rank
};

// Launches the ranks and trains. Returns the program's exit status; throws the first failing rank's exception.
//
// A stop signal (launch/stop_signals.h) ends the run at the next boundary: after a step, within an evaluation (which is cut),
// or during start-up. All ranks save the progress since the last checkpoint, regardless of checkpoint.every; one line says
// where they stopped and how to continue, and the status is launch::stopped_status. A run that continues from there ends as one
// that was never stopped, bit for bit. A run that has reached its last step is not stopped any more: it saves that step at once
// and ends as usual. Interrupted: a second signal ended it.
int train(const TrainRequest& request);

}  // namespace plait::train
