// Existing models (runs, checkpoints, and models of Hugging Face transformers) as configurations, with the tokenizer of their
// weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/tokenizer.h"

namespace plait::interop {

// A model of transformers as keys of a configuration, and notes on what is missing.
struct FoundModel {
  ModelDirectory keys;          // its tokenizer; without one, data.tokenizer: tokens
  std::int64_t positions = 0;   // its longest sequence
  std::string no_tokenizer;     // the reason its tokenizer is not taken over; "" if it is
  std::string other_tokenizer;  // the reason for using tokenizer.model instead of the tokenizer.json next to it; "" otherwise
  bool has_dropout = false;     // plait does not compute it
  std::vector<std::string> notes() const;  // for the user
};

// Reads config.json and tokenizer, and no weights. ConfigError as for interop::read_model().
FoundModel find_model(const std::filesystem::path& directory);

// The expansion of `model.from`: the reader for load_config().
ModelDirectory read_model_directory(const std::string& directory);

// A configuration for the model if the user has given none: keys that do not follow from it (data, steps) only hold their
// places.
Config config_of_model(const FoundModel& model, const std::string& name, const std::vector<std::string>& overrides = {});

// The configuration that weights were trained with, from any path that find_weights() accepts. ConfigError if a
// lone checkpoint holds none.
Config trained_config(const std::filesystem::path& weights, const std::vector<std::string>& overrides = {});

}  // namespace plait::interop
