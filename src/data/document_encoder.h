// Documents of text and of JSONL as tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/data_config.h"
#include "data/chat_encoder.h"
#include "data/document_marks.h"
#include "data/tokenizer.h"

namespace plait::data {

// Whether each line of a file is a document: NAME.jsonl, NAME.jsonl.zst.
bool is_jsonl(const std::filesystem::path& path);

// Immutable and thread-safe.
class DocumentEncoder {
 public:
  // Of `data` it takes jsonl, chat_template and document_token. `add_special_tokens`: what the tokenizer puts around a text
  // (Tokenizer::with_special_tokens). ConfigError where the tokenizer does not have what the chat template needs, or
  // the document token.
  DocumentEncoder(const DataConfig& data, const Tokenizer& tokenizer, bool add_special_tokens = false);

  const Tokenizer& tokenizer() const { return tokenizer_; }

  // A piece of a text (Tokenizer::piece_length), which is a document. `begins`, `ends`: the first, the last of its pieces.
  EncodedDocuments encode_piece(std::string_view text, bool begins, bool ends) const;

  // Adds the document of a line of JSONL; none for a line of white space, or without text. ConfigError naming file and line.
  void add_line(std::string_view line, const std::filesystem::path& file, std::int64_t number, EncodedDocuments& to) const;

 private:
  const Tokenizer& tokenizer_;
  std::string text_key_;
  bool add_special_tokens_;
  std::vector<std::int32_t> before_, behind_;  // each text document
  std::optional<ChatEncoder> chat_;
};

}  // namespace plait::data
