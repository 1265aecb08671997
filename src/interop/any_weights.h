// Finds and opens weights that a command is given: of a run, of a lone checkpoint, or of a model of transformers.
#pragma once

#include <filesystem>
#include <memory>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/weights_reader.h"

namespace plait::interop {

// Like checkpoint::find_checkpoint(), for callers that only read weights: also accepts a lone checkpoint, or a model of
// transformers. `run_dir` is then the same directory.
checkpoint::FoundCheckpoint find_weights(const std::filesystem::path& path);

// Opens a directory that find_weights() returned.
std::unique_ptr<checkpoint::WeightsReader> open_weights(const std::filesystem::path& directory);

}  // namespace plait::interop
