// Models that exist already: runs, checkpoints, and models of Hugging Face transformers, as configurations and with the
// tokenizer that their weights know.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/config.h"
#include "data/tokenizer.h"

namespace plait::train {

// A model of transformers in keys of a configuration, and what does not come with it.
struct FoundModel {
  ModelDirectory keys;                     // its tokenizer, else data.tokenizer: tokens
  std::int64_t positions = 0;              // the longest sequence that it was made for
  std::string no_tokenizer;                // why its tokenizer is not taken over; "" if it is
  std::string other_tokenizer;             // why it is tokenizer.model and not the tokenizer.json beside it; "" if it is not so
  bool has_dropout = false;                // which plait does not compute
  std::vector<std::string> notes() const;  // for the user
};

// Reads config.json and tokenizer, and no weights. ConfigError as checkpoint::huggingface::read_model() has it.
FoundModel find_model(const std::filesystem::path& directory);

// What `model.from` stands for: the reader for load_config().
ModelDirectory read_model_directory(const std::string& directory);

// A configuration that stands for the model where a user has given none: what does not follow from it (data, steps) only fills
// its place.
Config config_of_model(const FoundModel& model, const std::string& name, const std::vector<std::string>& overrides = {});

// The configuration that weights were trained with, from whatever checkpoint::find_weights() accepts. ConfigError if a lone
// checkpoint holds none.
Config trained_config(const std::filesystem::path& weights, const std::vector<std::string>& overrides = {});

// The tokenizer that the run in `run_dir` keeps; that of the configuration where it is a copy of a checkpoint without its run,
// or a model of transformers. ConfigError where the configuration names another one than these.
std::shared_ptr<const data::Tokenizer> trained_tokenizer(const Config& config, const std::filesystem::path& run_dir);

}  // namespace plait::train
