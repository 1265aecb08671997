// The records that ranks tell each other in a meeting: declared (core/record.h), and read strictly: exactly the declared
// members, each within its limits.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/record.h"

namespace plait::comm {

// The fault of a word, and its place in it. A Meeting adds the rank and the topic.
class InvalidWord : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Bytes of a text in a word, unless its rule says otherwise. Texts have no control characters.
inline constexpr std::size_t longest_word_text = 512;

const JsonSource& word_source();

// Makes `text` acceptable in a word: control characters become blanks, and a text that is too long is cut.
std::string as_field(std::string_view text, std::size_t most_bytes = longest_word_text);

std::string to_hex(std::span<const std::byte> bytes);
void bytes_from_hex(std::string_view text, std::span<std::byte> to);  // InvalidWord unless `text` fills `to` exactly

// A text that is made acceptable where it is told.
struct ToldText {
  std::size_t most_bytes = longest_word_text;
  std::string read(const JsonField& field) const { return field.text(most_bytes); }
  std::string write(const std::string& text) const { return as_field(text, most_bytes); }
};

// The bytes of a value, as hexadecimal digits.
void read_hex(const JsonField& field, std::span<std::byte> to);
template <typename T>
  requires std::is_trivially_copyable_v<T>
struct HexRule {
  T read(const JsonField& field) const {
    T value{};
    read_hex(field, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  std::string write(const T& value) const { return to_hex(std::as_bytes(std::span(&value, 1))); }
};

}  // namespace plait::comm

// Reading throws InvalidWord.
template <plait::Declared T>
struct nlohmann::adl_serializer<T, void> {
  static void to_json(nlohmann::ordered_json& json, const T& word) { json = plait::record_json(word); }
  static void from_json(const nlohmann::ordered_json& json, T& word) {
    word = plait::record_from<T>(plait::JsonField(json, plait::comm::word_source()));
  }
};
