// Models in the form of Hugging Face transformers: what of a config.json plait can compute, and where each of plait's
// parameters is among their tensors.
//
// gpt2: learned positions, LayerNorm, GELU (tanh form), biases everywhere; matrices are [in, out].
//
// llama (SmolLM too), mistral, qwen2, qwen3: rotary positions in halves, RMSNorm, SwiGLU; matrices are [out, in] as plait's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/config.h"
#include "model/parameters.h"

namespace plait::checkpoint::huggingface {

struct ForeignModel {
  std::string family;          // model_type
  ModelConfig model;           // every key that the family knows; vocab and max_sequence are numbers
  std::int64_t positions = 0;  // max_position_embeddings: the longest sequence that it was made for
  bool has_dropout = false;    // which plait does not compute
};

// Reads DIRECTORY/config.json. ConfigError naming file, field and value for what plait cannot compute (another family,
// activation, rotary scaling or kind of layer, biases that plait has together or not at all, quantised weights, ...), for a
// field that is missing, and for one that is no such number.
ForeignModel read_model(const std::filesystem::path& directory);

// The family that a model of plait is one of, and the config.json for it. `dtype`: "float32", "float16" or "bfloat16".
// ConfigError naming the key where no family has that.
std::string family_of(const ModelConfig& model);
std::string config_json(const ModelConfig& model, std::int64_t positions, const std::string& dtype);

// Rows [first, first + rows) of one of plait's parameters (elements of a vector), which are a tensor of the family's.
struct Piece {
  std::string tensor;
  std::int64_t first = 0, rows = 0;
  bool transposed = false;  // the tensor is [columns, rows]; it is the only piece then
};

// Each of plait's parameters (whole, in their order) as pieces: one after another, all rows. `prefix`: in front of all names
// but the head's ("transformer." for gpt2 as transformers writes it, "" in older files).
struct MappedParameter {
  model::Parameter parameter;
  std::vector<Piece> pieces;
};
std::vector<MappedParameter> map_parameters(const std::string& family, const model::ModelShape& shape,
                                            const std::string& prefix);

// The prefix that transformers writes: "transformer." or "model.".
std::string usual_prefix(const std::string& family);

// Whether a tensor of that name says nothing of the weights: buffers that older versions wrote.
bool is_buffer(const std::string& family, const std::string& tensor);

}  // namespace plait::checkpoint::huggingface
