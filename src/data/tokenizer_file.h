// The files that a saved tokenizer consists of. Private to src/data.
#pragma once

#include <filesystem>

#include "data/tokenizer.h"

namespace plait::data {

inline constexpr const char* tokenizer_description = "tokenizer.json";
inline constexpr const char* tokenizer_model = "tokenizer.model";

void save_description(const Tokenizer& tokenizer, const std::filesystem::path& directory);

}  // namespace plait::data
