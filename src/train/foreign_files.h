// What a model of transformers has beside its weights: config.json, generation_config.json, the tokenizer's files. A run whose
// weights came from such a model keeps them in RUN_DIR/huggingface, for export.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

namespace plait::train {

inline constexpr const char* kept_folder = "huggingface";
inline constexpr std::uint64_t most_side_bytes = std::uint64_t{1} << 30;

// Copies those that `from` has and `to` has not.
void copy_side_files(const std::filesystem::path& from, const std::filesystem::path& to);

// A directory with those of the model that a run's weights came from: what the run keeps, else what is still where `init_from`
// (RUN_DIR/init_from.json, null for none) says that the weights, and those that these came from, were. Nothing if there is
// none.
std::optional<std::filesystem::path> find_side_files(const std::filesystem::path& run_dir,
                                                     const nlohmann::ordered_json& init_from);

// Keeps them in a new run.
void keep_side_files(const std::filesystem::path& run_dir, const nlohmann::ordered_json& init_from);

}  // namespace plait::train
