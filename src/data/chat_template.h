// The templates by which chats are written out for a model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/data_config.h"

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

}  // namespace plait::data
