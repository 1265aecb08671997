// Chats: the templates by which they are written out for a model, and their encoding as tokens.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/data_config.h"
#include "data/documents.h"
#include "data/tokenizer.h"

namespace plait::data {

// A chat is `begin` and then its messages; each message's content stands between the prefix and suffix of its role.
struct ChatTemplate {
  struct Turn {
    std::string prefix, suffix;
  };
  std::string begin;
  std::optional<Turn> system;                 // nullopt: there is no system message
  std::optional<std::string> default_system;  // for a chat that does not begin with a system message
  bool only_first_system = false;             // later ones are refused
  bool system_in_user = false;                // it is written within the turn of the first user message, before its content
  Turn user, assistant;
  std::string assistant_end;  // between content and suffix of the assistant, and learned
  bool trim = false;  // strips white space around contents; a user's content after a system message keeps the space behind it
  bool alternate = false;                   // user and assistant must alternate, the user first
  std::vector<std::string> special_tokens;  // parts of the texts above that must be tokens of the tokenizer
};

// The template that data.chat_template names; nullopt for `none`. Sources of the published ones:
//   chatml    the plain form (OpenHermes, Qwen 1.5 and others), without a system message unless the chat has one
//   qwen2     Qwen2 Instruct, qwen2.5: Qwen2.5 Instruct; with their default system messages; without tools
//   llama2    Llama 2 Chat
//   llama3    Llama 3 Instruct; llama3.1: Llama 3.1 Instruct, with its fixed date and without tools
//   mistral   Mistral Instruct 0.2 and Mixtral
//   zephyr    Zephyr, TinyLlama
std::optional<ChatTemplate> chat_template(const DataConfig& data);

// The error, with its remedy, for a chat with content in a field for which no template of plait's has a place.
std::string no_place_in_template(const std::string& field);

// Private to src/data. Immutable and thread-safe.
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
