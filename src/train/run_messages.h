// What a training run says of itself at its start and at its end. Rank 0 says it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/device.h"
#include "data/tokenizer.h"
#include "parallel/ledger.h"
#include "train/run_start.h"
#include "train/trainer.h"

namespace plait::train {

// ConfigError where the sample that is due after the last step cannot be made: here, and not then.
void require_sample(const TrainConfig& train, const data::Tokenizer& tokenizer);

// What is lost if the run is killed, of one that saves nothing before its last step; "" of the others.
std::string work_at_risk(const Config& config, const RunStart& start);

// Of a run that `reason` has stopped after `step`: what is kept, and how to go on.
std::string stopped_text(const TrainRequest& request, const RunStart& start, std::int64_t step, const std::string& reason);

// Where the time of a step went, mean of `steps`, on rank 0 and on the one that lost most. `ledgers`: by rank; `width`:
// columns.
std::string spent_text(const std::vector<parallel::Ledger>& ledgers, int steps, int width);

// The sample, on stdout, of a run that has come to its end, or why there is none. Makes a launch of its own on `device`.
void print_sample(const Config& config, const std::filesystem::path& run_dir, Device device);

}  // namespace plait::train
