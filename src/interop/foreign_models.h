// Imports and exports models of Hugging Face transformers: directories with config.json, safetensors and tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/task_progress.h"

namespace plait::interop {

// The files that accompany the weights of a model of transformers: config.json, generation_config.json, the tokenizer's files.
// A run whose weights came from such a model keeps them in RUN_DIR/huggingface, for export. Keeps them in a new run: those that
// `init_from` (RUN_DIR/init_from.json, null for none) leads to.
void keep_side_files(const std::filesystem::path& run_dir, const nlohmann::ordered_json& init_from);

struct ImportRequest {
  std::filesystem::path model;              // the directory
  std::filesystem::path out;                // a run directory to make
  ProgressCallback progress = no_progress;  // names the tensor
};

// Makes a run directory with one checkpoint, of step 0: the weights as fp32, without moments. `plait train --init-from`, `eval`
// and `sample` accept it like any other. It keeps config.json and the tokenizer's files in OUT/huggingface, for export. Returns
// notes for the user. ConfigError, leaving nothing behind, for a model that plait cannot compute, invalid files, and an
// existing `out`.
std::vector<std::string> import_model(const ImportRequest& request);

struct ExportRequest {
  std::filesystem::path run_or_checkpoint;
  std::filesystem::path out;  // a directory to make
  // f32, f16 or bf16. nullopt: as imported, else bf16 if the run's precision.compute says so, and f32 otherwise (auto, fp64).
  std::optional<DType> dtype;
  std::uint64_t most_bytes = 5'000'000'000;  // per file, the default of save_pretrained()
  ProgressCallback progress = no_progress;   // names the tensor
};

// Writes the model like save_pretrained(), with the tokenizer's files if they are Hugging Face's. A model that was imported and
// not trained comes out with the tensors that went in, byte for byte. Weights of an fp64 run are rounded. ConfigError, leaving
// nothing behind, for a model that transformers has no form for, and an existing `out`.
std::vector<std::string> export_model(const ExportRequest& request);

}  // namespace plait::interop
