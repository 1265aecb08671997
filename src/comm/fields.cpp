#include "comm/fields.h"

#include <algorithm>
#include <utility>

#include "core/message.h"

namespace plait::comm {

Fields::Fields(const nlohmann::ordered_json& object) : object_(object) {
  if (!object.is_object()) throw InvalidWord("it is not an object");
}

const nlohmann::ordered_json& Fields::member(const char* name) {
  const auto found = object_.find(name);
  if (found == object_.end()) refuse(name, "is missing");
  read_.insert(name);
  return *found;
}

std::string Fields::text(const char* name, std::size_t most_bytes) {
  const nlohmann::ordered_json& value = member(name);
  if (!value.is_string()) refuse(name, "is not a string");
  const auto& text = value.get_ref<const std::string&>();
  if (text.size() > most_bytes) refuse(name, "is too long");
  if (std::any_of(text.begin(), text.end(), is_control)) refuse(name, "has control characters");
  return text;
}

std::int64_t Fields::integer(const char* name, std::int64_t least, std::int64_t most) {
  const nlohmann::ordered_json& value = member(name);
  if (!value.is_number_integer()) refuse(name, "is not a whole number");
  const bool fits = !value.is_number_unsigned() || std::in_range<std::int64_t>(value.get<std::uint64_t>());
  if (!fits || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most) {
    refuse(name, "is out of range (" + value.dump() + ")");
  }
  return value.get<std::int64_t>();
}

double Fields::number(const char* name) {
  const nlohmann::ordered_json& value = member(name);
  if (!value.is_number()) refuse(name, "is not a number");
  return value.get<double>();
}

bool Fields::flag(const char* name) {
  const nlohmann::ordered_json& value = member(name);
  if (!value.is_boolean()) refuse(name, "is neither true nor false");
  return value.get<bool>();
}

const nlohmann::ordered_json& Fields::list(const char* name, std::size_t most_entries) {
  const nlohmann::ordered_json& value = member(name);
  if (!value.is_array()) refuse(name, "is not a list");
  if (value.size() > most_entries) refuse(name, "has too many entries (" + std::to_string(value.size()) + ")");
  return value;
}

void Fields::bytes(const char* name, std::span<std::byte> to) {
  const std::string digits = text(name, 2 * to.size());
  try {
    bytes_from_hex(digits, to);
  } catch (const InvalidWord& error) {
    refuse(name, error.what());
  }
}

void Fields::end() const {
  for (const auto& [name, value] : object_.items()) {
    if (!read_.contains(name)) refuse(as_field(name), "does not belong there");
  }
}

void Fields::refuse(std::string_view name, const std::string& why) { throw InvalidWord("'" + std::string(name) + "' " + why); }

std::string as_field(std::string_view text, std::size_t most_bytes) {
  std::string result(text.substr(0, most_bytes));
  std::replace_if(result.begin(), result.end(), is_control, ' ');
  return result;
}

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    const auto value = std::to_integer<unsigned>(byte);
    text += {digits[value >> 4], digits[value & 15]};
  }
  return text;
}

void bytes_from_hex(std::string_view text, std::span<std::byte> to) {
  if (text.size() != 2 * to.size()) {
    throw InvalidWord("has " + std::to_string(text.size()) + " digits instead of " + std::to_string(2 * to.size()));
  }
  const auto digit = [](char c) -> unsigned {
    if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
    throw InvalidWord("is not hexadecimal");
  };
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = static_cast<std::byte>(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
  }
}

}  // namespace plait::comm
