// Encodes documents of text and of JSONL as tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/data_config.h"
#include "data/chat.h"
#include "data/documents.h"
#include "data/tokenizer.h"

namespace plait::data {

// True if each line of the file is a document: NAME.jsonl, NAME.jsonl.zst.
bool is_jsonl(const std::filesystem::path& path);

// Immutable and thread-safe.
class DocumentEncoder {
 public:
  // Uses jsonl, chat_template and document_token of `data`. `add_special_tokens`: adds the tokens that the tokenizer puts
  // around a text (Tokenizer::with_special_tokens). ConfigError if the tokenizer lacks a token of the chat template, or the
  // document token.
  DocumentEncoder(const DataConfig& data, const Tokenizer& tokenizer, bool add_special_tokens = false);

  const Tokenizer& tokenizer() const { return tokenizer_; }

  // Encodes a piece (Tokenizer::piece_length) of a text, which is one document. `begins`, `ends`: the first, the last of its
  // pieces.
  EncodedDocuments encode_piece(std::string_view text, bool begins, bool ends) const;

  // Adds the document of a line of JSONL; nothing for a line of white space, or without text. ConfigError naming file and line.
  void add_line(std::string_view line, const std::filesystem::path& file, std::int64_t number, EncodedDocuments& to) const;

 private:
  const Tokenizer& tokenizer_;
  std::string text_key_;
  bool add_special_tokens_;
  std::vector<std::int32_t> before_, behind_;  // added around each text document
  std::optional<ChatEncoder> chat_;
};

}  // namespace plait::data
