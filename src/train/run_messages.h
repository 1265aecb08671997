// The messages of a training run at its start and its end, printed by rank 0, and the commands that continue it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/device.h"
#include "data/tokenizer.h"
#include "parallel/ledger.h"
#include "train/run_start.h"
#include "train/trainer.h"

namespace plait::train {

// Quotes the arguments for a shell.
std::string command_line(const std::vector<std::string>& argv);

// The command that continues a run. A run keeps its configuration, so its directory is enough, unless it was itself resumed:
// then the other arguments are repeated.
std::string command_to_go_on(const TrainRequest& request, const std::filesystem::path& run_dir);

// The command for a new run with this one's configuration, from a checkpoint with its moments and step count.
std::string command_to_fork(const std::filesystem::path& checkpoint);

// ConfigError if the sample due after the last step cannot be made: checked at the start, not at the end.
void require_sample(const TrainConfig& train, const data::Tokenizer& tokenizer);

// The loss if the run is killed, for a run that saves nothing before its last step; "" for others.
std::string work_at_risk(const Config& config, const RunStart& start);

// For a run that `reason` stopped after `step`: the part that is kept, and how to continue.
std::string stopped_text(const TrainRequest& request, const RunStart& start, std::int64_t step, const std::string& reason);

// The use of a step's time, mean of `steps`, on rank 0 and on the rank that lost most. `ledgers`: by rank; `width`: columns.
std::string spent_text(const std::vector<parallel::Ledger>& ledgers, int steps, int width);

// Prints the sample of a completed run to stdout, or the reason why there is none. Makes its own launch on `device`.
void print_sample(const Config& config, const std::filesystem::path& run_dir, Device device);

}  // namespace plait::train
