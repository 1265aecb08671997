// What a checkpoint keeps of the samples: how many its steps took, and what decides their order. In state.json:
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

// Whether it keeps any: checkpoints of versions before this record do not.
bool has_sample_record(const checkpoint::CheckpointReader& checkpoint);

// Samples that the steps up to the checkpoint's took. ConfigError naming file and member where the record is not as it must be.
std::int64_t samples_taken(const checkpoint::CheckpointReader& checkpoint);

// In what the order of the checkpoint's samples differs from that of `dataset`, as problems of the configuration. Empty: the
// samples go on as if the run had never stopped. ConfigError as above.
std::vector<ConfigProblem> order_differences(const checkpoint::CheckpointReader& checkpoint, const data::Dataset& dataset);

// ConfigError for a checkpoint without a record, which a run cannot go on from as it was.
[[noreturn]] void refuse_unrecorded_order(const checkpoint::CheckpointReader& checkpoint);

}  // namespace plait::train
