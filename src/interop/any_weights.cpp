#include "interop/any_weights.h"

#include "checkpoint/checkpoint_reader.h"
#include "interop/foreign_weights.h"

namespace plait::interop {

checkpoint::FoundCheckpoint find_weights(const std::filesystem::path& path) {
  if (!checkpoint::is_lone_checkpoint(path) && !is_model_directory(path)) return checkpoint::find_checkpoint(path);
  const std::filesystem::path directory = std::filesystem::canonical(path);
  const auto reader = open_weights(directory);
  reader->verify();
  return {directory, directory, reader->step()};
}

std::unique_ptr<checkpoint::WeightsReader> open_weights(const std::filesystem::path& directory) {
  if (is_model_directory(directory)) return std::make_unique<ForeignWeights>(directory);
  return std::make_unique<checkpoint::CheckpointReader>(directory);
}

}  // namespace plait::interop
