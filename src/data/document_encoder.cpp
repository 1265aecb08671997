#include "data/document_encoder.h"

#include <nlohmann/json.hpp>

#include <spdlog/fmt/fmt.h>

#include "core/error.h"
#include "core/json.h"
#include "data/files.h"

namespace plait::data {
bool is_jsonl(const std::filesystem::path& path) { return (is_zstd(path) ? path.stem() : path).extension() == ".jsonl"; }

DocumentEncoder::DocumentEncoder(const DataConfig& data, const Tokenizer& tokenizer, bool add_special_tokens)
    : tokenizer_(tokenizer), text_key_(data.jsonl.text_key), add_special_tokens_(add_special_tokens) {
  const std::optional<ChatTemplate> chat = chat_template(data);
  if (chat && has_text(tokenizer.kind())) chat_.emplace(*chat, tokenizer);
  if (data.document_token.id < 0) return;
  if (data.document_token.id >= tokenizer.vocab()) {
    throw ConfigError({{"data.document_token.id", std::to_string(data.document_token.id),
                        fmt::format("must be below the tokenizer's vocabulary, {}", tokenizer.vocab()), "", 0}});
  }
  const bool begins = data.document_token.place == DocumentTokenPlace::begin;
  (begins ? before_ : behind_).push_back(static_cast<std::int32_t>(data.document_token.id));
}

EncodedDocuments DocumentEncoder::encode_piece(std::string_view text, bool begins, bool ends) const {
  EncodedDocuments piece{tokenizer_.encode_piece(text, begins), {}};
  if (add_special_tokens_) piece.tokens = tokenizer_.with_special_tokens(std::move(piece.tokens), begins, ends);
  if (begins) piece.tokens.insert(piece.tokens.begin(), before_.begin(), before_.end());
  if (ends) piece.tokens.insert(piece.tokens.end(), behind_.begin(), behind_.end());
  if (begins && !piece.tokens.empty()) piece.marks.begin_document(0);
  return piece;
}

void DocumentEncoder::add_line(std::string_view line, const std::filesystem::path& file, std::int64_t number,
                               EncodedDocuments& to) const {
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
  const auto refuse = [&](const std::string& why) {
    throw ConfigError({{fmt::format("{}:{}", file.string(), number), "", why, "", 0}});
  };
  const nlohmann::json document = parse_json(line, refuse);
  if (!document.is_object()) refuse("must be a JSON object");
  const auto text = document.find(text_key_), messages = document.find("messages");
  if (chat_ && messages != document.end()) {
    for (const char* field : {"tools", "functions"}) {
      if (const auto given = document.find(field); given != document.end() && !given->empty())
        refuse(no_place_in_template(fmt::format("'{}'", field)));
    }
    try {
      return chat_->add(*messages, to);
    } catch (const ConfigError& error) {
      refuse(error.what());
    }
  }
  if (text == document.end()) {
    refuse(messages != document.end()
               ? "is a chat: set data.chat_template to what the model expects"
               : fmt::format("has no '{}' (data.jsonl.text_key){}", text_key_, chat_ ? " and no 'messages'" : ""));
  }
  if (!text->is_string()) refuse(fmt::format("'{}' must be a string", text_key_));
  const auto& content = text->get_ref<const std::string&>();
  if (content.empty()) return;
  const EncodedDocuments encoded = encode_piece(content, true, true);
  to.marks.append(encoded.marks, std::ssize(to.tokens));
  to.tokens.insert(to.tokens.end(), encoded.tokens.begin(), encoded.tokens.end());
}

}  // namespace plait::data
