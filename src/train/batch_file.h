// A file with the tokens of a run's first steps: for other programs (`plait data batches`), and for ranks that should not read
// and encode the text themselves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "config/config.h"
#include "core/task_progress.h"
#include "data/dataset.h"

namespace plait::train {

// Makes a safetensors file of `tokens` and `targets` (-1: not learned), and, where documents are separate, `starts`, each int32
// [step, sequence of the global batch, position], for steps 1 to `steps` of `dataset`, which belongs to `config`. It appears
// when it is complete: it is PATH.part until then, and an error removes it. ConfigError if the file exists.
void write_batches(const std::filesystem::path& path, const data::Dataset& dataset, const Config& config, std::int64_t steps,
                   const ProgressCallback& progress = no_progress);

// These steps as training samples, read on demand; there is no validation split. ConfigError naming the file if it was not made
// for data.sequence_length, train.global_batch and data.documents of `config`.
std::shared_ptr<const data::Dataset> open_batches(const std::filesystem::path& path, const Config& config);

}  // namespace plait::train
