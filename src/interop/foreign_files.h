// The files that accompany the weights of a model of transformers: config.json, generation_config.json, the tokenizer's files.
// A run whose weights came from such a model keeps them in RUN_DIR/huggingface, for export.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

namespace plait::interop {

inline constexpr const char* kept_folder = "huggingface";
inline constexpr std::uint64_t most_side_bytes = std::uint64_t{1} << 30;

// Copies those that exist in `from` and not in `to`.
void copy_side_files(const std::filesystem::path& from, const std::filesystem::path& to);

// A directory with these files for the model that a run's weights came from: the run's own copy, else the place where
// `init_from` (RUN_DIR/init_from.json, null for none) says that the weights, or those that they came from, were, if it still
// exists. nullopt if there is none.
std::optional<std::filesystem::path> find_side_files(const std::filesystem::path& run_dir,
                                                     const nlohmann::ordered_json& init_from);

// Keeps the files in a new run.
void keep_side_files(const std::filesystem::path& run_dir, const nlohmann::ordered_json& init_from);

}  // namespace plait::interop
