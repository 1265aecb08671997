// The tokens of a run's first steps in a file: for other programs (`plait data batches`), and for ranks that are not to read
// and encode the text themselves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "core/config.h"
#include "core/progress_callback.h"
#include "data/dataset.h"

namespace plait::train {

// Makes a safetensors file of `tokens` and `targets` (-1: nothing is learned), and where documents are separate `starts`, each
// int32 [step, sequence of the global batch, position], of the steps from 1 to `steps` of `dataset`, which is of `config`. It
// appears when it is whole: PATH.part until then, of which an error leaves nothing. ConfigError if there is such a file.
void write_batches(const std::filesystem::path& path, const data::Dataset& dataset, const Config& config, std::int64_t steps,
                   const ProgressCallback& progress = no_progress);

// Those steps as training samples, read as they are asked for; there is no validation split. ConfigError naming the file if it
// was not made for data.sequence_length, train.global_batch and data.documents of `config`.
std::shared_ptr<const data::Dataset> open_batches(const std::filesystem::path& path, const Config& config);

}  // namespace plait::train
