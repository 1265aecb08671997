// Chats as tokens. Private to src/data.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/chat_template.h"
#include "data/document_marks.h"
#include "data/tokenizer.h"

namespace plait::data {

// Why a chat is refused that says something in a field which no template of plait's has a place for, and the remedy.
std::string no_place_in_template(const std::string& field);

// Immutable and thread-safe.
class ChatEncoder {
 public:
  // ConfigError where the tokenizer lacks a special token of the template.
  ChatEncoder(ChatTemplate chat_template, const Tokenizer& tokenizer);  // which outlives it

  // Adds a chat, [{"role": "user", "content": "..."}, ...], as one document. Masked is all but what the assistant says and
  // `assistant_end`. Text of a message never becomes a special token, or one that the template uses. ConfigError saying which
  // message is wrong, without the place.
  void add(const nlohmann::json& messages, EncodedDocuments& to) const;

 private:
  ChatTemplate template_;
  const Tokenizer& tokenizer_;
  TokenSet reserved_;
};

}  // namespace plait::data
