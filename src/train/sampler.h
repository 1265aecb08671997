// Generates text from a trained model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/device.h"
#include "data/tokenizer.h"

namespace plait::train {

struct SampleRequest {
  std::filesystem::path weights;  // a run, a checkpoint, or a model of transformers
  std::string prompt;
  std::int64_t tokens = 200;
  double temperature = 0.8;  // 0: always the likeliest token
  std::int64_t top_k = 0;    // 0: from the whole vocabulary
  std::uint64_t seed = 1234;
};

// The tokens of a text to continue. ConfigError on `key`, which gave it, if there are none.
std::vector<std::int32_t> prompt_tokens(const data::Tokenizer& tokenizer, const std::string& prompt, const std::string& key);

// Generates text on one device and passes it to `on_text` piece by piece: the prompt first, then one piece per token.
void sample(const SampleRequest& request, Device device, const std::function<void(const std::string&)>& on_text);

}  // namespace plait::train
