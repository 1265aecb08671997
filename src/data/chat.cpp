#include "data/chat.h"

#include <spdlog/fmt/fmt.h>

#include <array>
#include <map>
#include <string_view>

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

namespace {

using Json = nlohmann::json;

// The number of bytes of white space at the beginning of a text, by the definition of Python's str.strip() and Jinja's trim.
std::size_t leading_space(std::string_view text) {
  static constexpr std::array<std::string_view, 29> spaces = {
      "\t",       "\n",       "\v",     "\f",     "\r",     "\x1c",   "\x1d",   "\x1e",   "\x1f",   " ",
      "\xc2\x85", "\xc2\xa0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",
      "\u2007",   "\u2008",   "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};
  for (const std::string_view space : spaces) {
    if (text.starts_with(space)) return space.size();
  }
  return 0;
}

std::string_view without_leading_space(std::string_view text) {
  while (const std::size_t bytes = leading_space(text)) text.remove_prefix(bytes);
  return text;
}

std::string_view without_trailing_space(std::string_view text) {
  for (std::size_t character = 1; character <= 3 && character <= text.size();) {
    const bool is_space = leading_space(text.substr(text.size() - character)) == character;
    if (is_space) text.remove_suffix(character);
    character = is_space ? 1 : character + 1;
  }
  return text;
}

struct Message {
  enum class Role { system, user, assistant } role;
  std::string_view content;
};

[[noreturn]] void refuse_chat(const std::string& why) { throw ConfigError(why); }

// Any other field of a message would silently be lost. Empty ones are accepted: data sets that have a field in some messages
// often have it as null in the others.
bool says_something(const Json& value) {
  return !value.is_null() && !(value.is_string() && value.get_ref<const std::string&>().empty()) &&
         !(value.is_structured() && value.empty());
}

std::vector<Message> read_messages(const Json& json) {
  static const std::map<std::string, Message::Role> roles = {
      {"system", Message::Role::system}, {"user", Message::Role::user}, {"assistant", Message::Role::assistant}};
  if (!json.is_array() || json.empty()) refuse_chat("messages must be a list of {\"role\": ..., \"content\": ...}, not empty");
  std::vector<Message> messages;
  for (const Json& entry : json) {
    const std::string where = fmt::format("messages[{}]", messages.size());
    for (auto field = entry.begin(); entry.is_object() && field != entry.end(); ++field) {
      if (field.key() != "role" && field.key() != "content" && says_something(*field)) {
        refuse_chat(no_place_in_template(where + "." + field.key()));
      }
    }
    const auto text = [&](const char* key) -> const std::string& {
      const auto found = entry.is_object() ? entry.find(key) : entry.end();
      if (!entry.is_object() || found == entry.end() || !found->is_string())
        refuse_chat(fmt::format("{}.{} must be a string", where, key));
      return found->get_ref<const std::string&>();
    };
    const auto role = roles.find(text("role"));
    if (role == roles.end())
      refuse_chat(fmt::format("{}.role is '{}', must be one of system, user, assistant", where, text("role")));
    messages.push_back({role->second, text("content")});
  }
  return messages;
}

void check_order(const ChatTemplate& chat_template, const std::vector<Message>& messages) {
  const bool begins_with_system = messages.front().role == Message::Role::system;
  for (std::size_t n = 0; n < messages.size(); ++n) {
    const bool system = messages[n].role == Message::Role::system;
    if (system && !chat_template.system) refuse_chat(fmt::format("messages[{}]: the chat template has no system messages", n));
    if (system && n > 0 && chat_template.only_first_system)
      refuse_chat(fmt::format("messages[{}]: with this chat template only the first message may be a system message", n));
    const bool users_turn = (n - (begins_with_system ? 1 : 0)) % 2 == 0;
    if (!system && chat_template.alternate && (messages[n].role == Message::Role::user) != users_turn)
      refuse_chat(fmt::format("messages[{}]: with this chat template user and assistant take turns, the user first", n));
  }
  if (chat_template.system_in_user && begins_with_system && messages.size() < 2)
    refuse_chat("messages: with this chat template a system message is part of the user's that follows, and there is none");
}

std::vector<TextPart> parts_of(const ChatTemplate& t, const std::vector<Message>& messages) {
  std::vector<TextPart> parts;
  const auto write = [&](std::string_view text, bool learned = false) { parts.push_back({text, true, learned}); };
  const auto say = [&](std::string_view text, bool learned = false) { parts.push_back({text, false, learned}); };
  const auto trimmed = [&](std::string_view text) {
    return t.trim ? without_trailing_space(without_leading_space(text)) : text;
  };
  write(t.begin);
  std::vector<Message> all = messages;
  if (t.default_system && all.front().role != Message::Role::system)
    all.insert(all.begin(), {Message::Role::system, *t.default_system});
  for (std::size_t n = 0; n < all.size(); ++n) {
    const std::string_view content = all[n].content;
    switch (all[n].role) {
      case Message::Role::system:
        if (t.system_in_user) break;
        write(t.system->prefix);
        say(trimmed(content));
        write(t.system->suffix);
        break;
      case Message::Role::user:
        write(t.user.prefix);
        if (t.system_in_user && n == 1 && all[0].role == Message::Role::system) {
          write(t.system->prefix);
          say(all[0].content);
          const std::string_view said = t.trim ? without_trailing_space(content) : content;
          write(t.trim && said.empty() ? without_trailing_space(t.system->suffix) : t.system->suffix);
          say(said);
        } else {
          say(trimmed(content));
        }
        write(t.user.suffix);
        break;
      case Message::Role::assistant:
        write(t.assistant.prefix);
        say(trimmed(content), true);
        write(t.assistant_end, true);
        write(t.assistant.suffix);
        break;
    }
  }
  return parts;
}

}  // namespace

std::string no_place_in_template(const std::string& field) {
  return field + " has no place in a chat template of plait's, which would leave it out: take it away if that is meant, or " +
         "encode such chats with the model's own template (data.tokenizer: tokens)";
}

ChatEncoder::ChatEncoder(ChatTemplate chat_template, const Tokenizer& tokenizer)
    : template_(std::move(chat_template)), tokenizer_(tokenizer) {
  const auto tokens_of = [&](const std::string& text) {
    const TextPart part{text, true, false};
    return tokenizer.encode_parts(std::span(&part, 1), {}).tokens;
  };
  reserved_ = special_tokens(tokenizer);
  TokenSet added;
  for (const AddedTokenName& token : tokenizer.added_tokens()) added.insert(token.id);
  const ChatTemplate::Turn system = template_.system.value_or(ChatTemplate::Turn{});
  for (const std::string& text : {template_.begin, system.prefix, system.suffix, template_.user.prefix, template_.user.suffix,
                                  template_.assistant.prefix, template_.assistant_end, template_.assistant.suffix}) {
    for (const std::int32_t token : tokens_of(text)) {
      if (added.contains(token)) reserved_.insert(token);
    }
  }
  std::vector<ConfigProblem> problems;
  for (const std::string& text : template_.special_tokens) {
    const std::vector<std::int32_t> tokens = tokens_of(text);
    // Some SentencePiece tokens stand for a leading space that is not in the text.
    const auto is_behind_no_text = [&] {
      const std::span<const std::int32_t> all(tokens);
      return !all.empty() && tokenizer.decode(all.last(1)) == text && tokenizer.decode(all.first(all.size() - 1)).empty();
    };
    if (tokens.size() == 1 || is_behind_no_text()) {
      reserved_.insert(tokens.back());
    } else {
      problems.push_back(
          {"data.chat_template", "", fmt::format("the template's special token {} is no token of the tokenizer", text), "", 0});
    }
  }
  if (!problems.empty()) throw ConfigError(problems);
}

void ChatEncoder::add(const nlohmann::json& messages, EncodedDocuments& to) const {
  const std::vector<Message> read = read_messages(messages);
  check_order(template_, read);
  const PartTokens encoded = tokenizer_.encode_parts(parts_of(template_, read), reserved_);
  const std::int64_t first = std::ssize(to.tokens);
  if (!encoded.tokens.empty()) to.marks.begin_document(first);
  for (std::size_t i = 0; i < encoded.tokens.size(); ++i) {
    const std::int64_t at = first + static_cast<std::int64_t>(i);
    if (!encoded.learned[i]) to.marks.mask(at, at + 1);
  }
  to.tokens.insert(to.tokens.end(), encoded.tokens.begin(), encoded.tokens.end());
}

}  // namespace plait::data
