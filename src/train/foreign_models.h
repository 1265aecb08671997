// Models of Hugging Face transformers in and out: directories with config.json, safetensors and tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/progress_callback.h"

namespace plait::train {

struct ImportRequest {
  std::filesystem::path model;              // the directory
  std::filesystem::path out;                // a run directory to make
  ProgressCallback progress = no_progress;  // names the tensor
};

// Makes a run directory with one checkpoint, of step 0: the weights as fp32, without moments. `plait train --init-from`, `eval`
// and `sample` take it as any other. It keeps config.json and the tokenizer's files in OUT/huggingface, for export. Returns
// what the user should know. ConfigError, and nothing is left, for a model that plait cannot compute, files that are not as
// they should be, and an `out` that exists.
std::vector<std::string> import_model(const ImportRequest& request);

struct ExportRequest {
  std::filesystem::path run_or_checkpoint;
  std::filesystem::path out;  // a directory to make
  // f32, f16 or bf16. Nothing: as it was imported, else bf16 where the run's precision.compute says so, and f32 (auto, fp64).
  std::optional<DType> dtype;
  std::uint64_t most_bytes = 5'000'000'000;  // in one file, as save_pretrained() has it
  ProgressCallback progress = no_progress;   // names the tensor
};

// Writes the model as save_pretrained() does, with the tokenizer's files where they are Hugging Face's. A model that was
// imported and not trained comes out with the tensors that went in, byte for byte. Weights of an fp64 run are rounded.
// ConfigError, and nothing is left, for a model that transformers has no form for, and an `out` that exists.
std::vector<std::string> export_model(const ExportRequest& request);

}  // namespace plait::train
