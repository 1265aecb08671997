// The command that continues a run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "train/trainer.h"

namespace plait::train {

// Quotes the arguments for a shell.
std::string command_line(const std::vector<std::string>& argv);

// A run keeps its configuration, so its directory is enough, unless it was itself resumed: then the other arguments are
// repeated.
std::string command_to_go_on(const TrainRequest& request, const std::filesystem::path& run_dir);

// The command for a new run with this one's configuration, from a checkpoint with its moments and step count.
std::string command_to_fork(const std::filesystem::path& checkpoint);

}  // namespace plait::train
