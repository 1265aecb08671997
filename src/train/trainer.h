// A training run, from configuration to the last checkpoint.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launch/job_planning.h"
#include "launch/launch.h"

namespace plait::train {

struct TrainRequest {
  launch::SettledJob job;
  std::filesystem::path resume;   // a run directory, or one of its checkpoints; empty: a new run
  std::vector<std::string> argv;  // how this program was started, for rank processes
};

// Launches the ranks and trains. Returns the program's exit status; throws what the first failing rank threw.
int train(const TrainRequest& request);

// One rank's part: what train() runs on every rank.
void train_rank(const TrainRequest& request, launch::RankContext& rank);

}  // namespace plait::train
