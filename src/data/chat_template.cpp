#include "data/chat_template.h"

#include "core/error.h"

namespace plait::data {
namespace {

ChatTemplate chatml(std::optional<std::string> default_system) {
  ChatTemplate made;
  made.system = {"<|im_start|>system\n", "<|im_end|>\n"};
  made.default_system = std::move(default_system);
  made.user = {"<|im_start|>user\n", "<|im_end|>\n"};
  made.assistant = {"<|im_start|>assistant\n", "\n"};
  made.assistant_end = "<|im_end|>";
  made.special_tokens = {"<|im_start|>", "<|im_end|>"};
  return made;
}

ChatTemplate llama3() {
  ChatTemplate made;
  made.begin = "<|begin_of_text|>";
  made.system = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"};
  made.user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"};
  made.assistant = {"<|start_header_id|>assistant<|end_header_id|>\n\n", ""};
  made.assistant_end = "<|eot_id|>";
  made.trim = true;
  made.special_tokens = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
  return made;
}

ChatTemplate llama3_1() {
  ChatTemplate made = llama3();
  made.system->prefix += "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
  made.default_system = "";
  made.only_first_system = true;
  return made;
}

ChatTemplate llama2() {
  ChatTemplate made;
  made.system = {"<<SYS>>\n", "\n<</SYS>>\n\n"};
  made.only_first_system = made.system_in_user = made.trim = made.alternate = true;
  made.user = {"<s>[INST] ", " [/INST]"};
  made.assistant = {" ", ""};
  made.assistant_end = " </s>";
  made.special_tokens = {"<s>", "</s>"};
  return made;
}

ChatTemplate mistral() {
  ChatTemplate made;
  made.begin = "<s>";
  made.user = {"[INST] ", " [/INST]"};
  made.assistant_end = "</s>";
  made.alternate = true;
  made.special_tokens = {"<s>", "</s>"};
  return made;
}

ChatTemplate zephyr() {
  ChatTemplate made;
  made.system = {"<|system|>\n", "</s>\n"};
  made.user = {"<|user|>\n", "</s>\n"};
  made.assistant = {"<|assistant|>\n", "\n"};
  made.assistant_end = "</s>";
  made.special_tokens = {"</s>"};
  return made;
}

ChatTemplate custom(const CustomTemplateConfig& given) {
  ChatTemplate made;
  made.begin = given.begin;
  if (!given.system_prefix.empty() || !given.system_suffix.empty() || !given.default_system.empty())
    made.system = {given.system_prefix, given.system_suffix};
  if (!given.default_system.empty()) made.default_system = given.default_system;
  made.user = {given.user_prefix, given.user_suffix};
  made.assistant = {given.assistant_prefix, given.assistant_suffix};
  made.assistant_end = given.assistant_end;
  made.trim = given.trim;
  made.special_tokens = given.special_tokens;
  return made;
}

}  // namespace

std::optional<ChatTemplate> chat_template(const DataConfig& data) {
  switch (data.chat_template) {
    case ChatFormat::none: return std::nullopt;
    case ChatFormat::chatml: return chatml(std::nullopt);
    case ChatFormat::qwen2: return chatml("You are a helpful assistant.");
    case ChatFormat::qwen2_5: return chatml("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.");
    case ChatFormat::llama2: return llama2();
    case ChatFormat::llama3: return llama3();
    case ChatFormat::llama3_1: return llama3_1();
    case ChatFormat::mistral: return mistral();
    case ChatFormat::zephyr: return zephyr();
    case ChatFormat::custom: return custom(data.custom_template);
  }
  throw InternalError("chat_template: no such format");
}

}  // namespace plait::data
