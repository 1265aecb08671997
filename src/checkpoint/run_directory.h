// RUN_DIR: config.yaml (resolved), plan.json, metrics.jsonl, tokenizer, TensorBoard events, checkpoints/.
#pragma once

#include <filesystem>
#include <string>

#include "core/config.h"

namespace plait::checkpoint {

// Creates DIR/NAME, private to the user (0700). An existing one is never written over: the next free of NAME-2, NAME-3, ...
// is taken instead.
std::filesystem::path create_run_directory(const RunConfig& run);

// The run directory that `path`, it or one of its checkpoints, belongs to.
std::filesystem::path run_directory_of(const std::filesystem::path& path);

// The configuration a run was started with.
Config load_run_config(const std::filesystem::path& run_dir, const std::vector<std::string>& overrides = {});

}  // namespace plait::checkpoint
