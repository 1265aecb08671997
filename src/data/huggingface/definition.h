// The definition of a Hugging Face tokenizer.json, as far as plait implements it.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/huggingface/added_tokens.h"
#include "data/huggingface/byte_pairs.h"
#include "data/huggingface/split_pattern.h"

namespace plait::data {

struct TokenizerDefinition {
  std::vector<AddedToken> added;
  bool nfc = false;                  // normalizer
  std::vector<SplitPattern> splits;  // pre-tokenizer: each splits the pieces of the previous one
  bool prefix_space = false;         // a text that does not begin with a space gets one
  BytePairModel model;
  std::unordered_map<std::int32_t, std::string> text;  // every token's bytes
  std::int64_t vocab = 0;                              // largest id + 1
  std::vector<std::int32_t> prefix, suffix;            // added around a text by post-processing if special tokens are wanted
};

// Reads byte-level BPE:
//   model            BPE: vocab, merges (["a b"] or [["a", "b"]]), unk_token, fuse_unk, ignore_merges
//   normalizer       none, NFC, or a Sequence of them
//   pre_tokenizer    ByteLevel, alone or at the end of a Sequence with Split and Digits
//   post_processor   none, ByteLevel, TemplateProcessing, or a Sequence of them
//   decoder          ByteLevel
//   added_tokens     all their properties
// The reader trusts nothing in the file. Invalid or unsupported content is a ConfigError that names `origin` (the file), field,
// value and the expected form.
TokenizerDefinition read_tokenizer_definition(const std::string& json, const std::string& origin);

// Contents and ids of its added_tokens; the rest of the file is ignored.
std::vector<AddedToken> read_added_tokens(const std::string& json, const std::string& origin);

}  // namespace plait::data
