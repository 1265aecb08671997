// A checkpoint's record of the samples: how many its steps used, and what decides their order. In state.json:
//   "data": {"samples": 24, "order": {"run.seed": "1234", ...}}
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "core/error.h"
#include "data/dataset.h"

namespace plait::train {

nlohmann::ordered_json sample_record(const data::Dataset& dataset, std::int64_t samples);

// False for checkpoints of versions before this record.
bool has_sample_record(const checkpoint::CheckpointReader& checkpoint);

// Number of samples used by the steps up to the checkpoint's. ConfigError naming file and member if the record is invalid.
std::int64_t samples_taken(const checkpoint::CheckpointReader& checkpoint);

// The differences between the order of the checkpoint's samples and that of `dataset`, as problems of the configuration. Empty:
// the samples go on as if the run had never stopped. ConfigError as above.
std::vector<ConfigProblem> order_differences(const checkpoint::CheckpointReader& checkpoint, const data::Dataset& dataset);

// Throws the ConfigError for a checkpoint without a record, from which a run cannot continue exactly.
[[noreturn]] void refuse_unrecorded_order(const checkpoint::CheckpointReader& checkpoint);

}  // namespace plait::train
