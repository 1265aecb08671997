// Text to tokens and back.
//
// A run keeps its tokenizer in its directory: tokenizer.json says which one it is, tokenizer.model is SentencePiece's model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"

namespace plait::data {

// Immutable and thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string kind() const = 0;    // data.tokenizer's name for it
  virtual std::int64_t vocab() const = 0;  // tokens are in [0, vocab)
  // ConfigError where the text cannot be encoded: bytes that are not UTF-8 (sentencepiece), or a tokenizer that is not
  // there (tokens, random: the ids came from elsewhere).
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  // Tokens without text, and the ids of a tokenizer that is not there, appear as " <id>".
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
  // What encode() depends on beside the kind: two tokenizers of one kind that have it in common give the same tokens. The size
  // of the vocabulary where there is no encode().
  virtual std::string definition() const = 0;
  // Writes tokenizer.json, and tokenizer.model if there is a model, into an existing directory.
  virtual void save(const std::filesystem::path& directory) const = 0;
};

// Every byte is a token: vocabulary 256, any file will do.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

// Stands in for the tokenizer of token shards and of random tokens: knows only the size of the vocabulary.
std::unique_ptr<Tokenizer> make_token_id_tokenizer(std::string kind, std::int64_t vocab);

// An existing SentencePiece model. ConfigError naming the file.
std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& model);

// Trains a unigram model (Kudo 2018) with byte fallback, so that decode(encode(text)) == text. Single-threaded and without
// random choices: the same files give the same model. Of more than 64 MiB of text, every n-th line is used.
std::unique_ptr<Tokenizer> train_sentencepiece(const std::vector<std::filesystem::path>& files, std::int64_t vocab);

// The tokenizer a configuration asks for. Trains where it says so, which takes a while: one rank (or the launcher) calls
// this once and saves the result to the run directory, the others and every resume call load_tokenizer.
std::unique_ptr<Tokenizer> create_tokenizer(const Config& config);

// How much of `text` to take when it is worked through in pieces of about `most` bytes: up to the end of a line, else up to
// the end of a character, else `most`.
std::size_t piece_length(std::string_view text, std::size_t most);

// Whether save() wrote a tokenizer into this directory.
bool has_tokenizer(const std::filesystem::path& directory);

// The tokenizer that save() wrote. ConfigError naming the file when there is none or it is damaged.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& directory);

// Tokens of the configuration's tokenizer. One that would have to be trained first is not: what it is going to have.
std::int64_t vocabulary(const Config& config);

}  // namespace plait::data
