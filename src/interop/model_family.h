// Model families of Hugging Face transformers: the settings of a config.json that plait can compute, and the places of plait's
// parameters among their tensors.
//
// gpt2: learned positions, LayerNorm, GELU (tanh form), biases everywhere; matrices are [in, out].
//
// llama (SmolLM too), mistral, qwen2, qwen3: rotary positions in halves, RMSNorm, SwiGLU; matrices are [out, in] like plait's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "config/config.h"
#include "model/parameters.h"

namespace plait::interop {

struct ForeignModel {
  std::string family;          // model_type
  ModelConfig model;           // every key of the family; vocab and max_sequence are numbers
  std::int64_t positions = 0;  // max_position_embeddings: its longest sequence
  bool has_dropout = false;    // plait does not compute it
};

// Reads DIRECTORY/config.json. ConfigError naming file, field and value for anything that plait cannot compute (another family,
// activation, rotary scaling or kind of layer, biases that plait has only together, quantised weights, ...), for a missing
// field, and for an invalid number.
ForeignModel read_model(const std::filesystem::path& directory);

// The family of a model of plait, and the config.json for it. `dtype`: "float32", "float16" or "bfloat16". ConfigError naming
// the key that no family has.
std::string family_of(const ModelConfig& model);
std::string config_json(const ModelConfig& model, std::int64_t positions, const std::string& dtype);

// Rows [first, first + rows) of one of plait's parameters (elements of a vector), stored as a tensor of the family.
struct Piece {
  std::string tensor;
  std::int64_t first = 0, rows = 0;
  bool transposed = false;  // the tensor is [columns, rows]; it is the only piece then
};

// Each of plait's parameters (whole, in their order) as pieces: one after another, all rows. `prefix`: in front of all names
// except the head's ("transformer." for gpt2 as transformers writes it, "" in older files).
struct MappedParameter {
  model::Parameter parameter;
  std::vector<Piece> pieces;
};
std::vector<MappedParameter> map_parameters(const std::string& family, const model::ModelShape& shape,
                                            const std::string& prefix);

// The prefix in transformers' own files: "transformer." or "model.".
std::string usual_prefix(const std::string& family);

// True for a tensor name that is not a weight: buffers that older versions wrote.
bool is_buffer(const std::string& family, const std::string& tensor);

}  // namespace plait::interop
