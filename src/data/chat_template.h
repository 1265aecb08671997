// How a chat is written out for a model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/data_config.h"

namespace plait::data {

// A chat is `begin` and then its messages, each its content between what is written around messages of its role.
struct ChatTemplate {
  struct Turn {
    std::string prefix, suffix;
  };
  std::string begin;
  std::optional<Turn> system;                 // nothing: there is no system message
  std::optional<std::string> default_system;  // of a chat that does not begin with a system message
  bool only_first_system = false;             // further ones are refused
  bool system_in_user = false;                // it is written within the turn of the first user's message, before its content
  Turn user, assistant;
  std::string assistant_end;  // between content and suffix of the assistant, and learned
  bool trim = false;          // no white space around contents; of a user's content with a system message, none behind it
  bool alternate = false;     // user and assistant by turns, the user first; else refused
  std::vector<std::string> special_tokens;  // parts of the texts above that must be tokens of the tokenizer
};

// The template that data.chat_template names; nothing for `none`. The published ones are those of
//   chatml    the form by itself (OpenHermes, Qwen 1.5 and others), without a system message unless the chat has one
//   qwen2     Qwen2 Instruct, qwen2.5: Qwen2.5 Instruct; with their default system messages; without tools
//   llama2    Llama 2 Chat
//   llama3    Llama 3 Instruct; llama3.1: Llama 3.1 Instruct, with its fixed date and without tools
//   mistral   Mistral Instruct 0.2 and Mixtral
//   zephyr    Zephyr, TinyLlama
std::optional<ChatTemplate> chat_template(const DataConfig& data);

}  // namespace plait::data
