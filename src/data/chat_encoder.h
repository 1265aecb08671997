// Encodes chats as tokens. Private to src/data.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/chat_template.h"
#include "data/document_marks.h"
#include "data/tokenizer.h"

namespace plait::data {

// The error, with its remedy, for a chat with content in a field for which no template of plait's has a place.
std::string no_place_in_template(const std::string& field);

// Immutable and thread-safe.
class ChatEncoder {
 public:
  // ConfigError if the tokenizer lacks a special token of the template.
  ChatEncoder(ChatTemplate chat_template, const Tokenizer& tokenizer);  // the tokenizer outlives it

  // Adds a chat, [{"role": "user", "content": "..."}, ...], as one document. Everything is masked except the assistant's
  // content and `assistant_end`. Text of a message never becomes a special token, nor a token that the template uses.
  // ConfigError saying which message is wrong, without the place.
  void add(const nlohmann::json& messages, EncodedDocuments& to) const;

 private:
  ChatTemplate template_;
  const Tokenizer& tokenizer_;
  TokenSet reserved_;
};

}  // namespace plait::data
