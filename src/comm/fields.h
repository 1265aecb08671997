// Reads what a peer said, member by member and strictly: the members that were written, within their limits, and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace plait::comm {

// What is wrong with a word; a Meeting adds who said it and on what. Readers (from_json) throw it.
class InvalidWord : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Fields {
 public:
  static constexpr std::size_t longest_text = 512;

  // InvalidWord, naming the member, wherever the object or one of its members is not what it should be.
  explicit Fields(const nlohmann::ordered_json& object);

  // Without control characters; `most_bytes` long at most.
  std::string text(const char* name, std::size_t most_bytes = longest_text);
  std::int64_t integer(const char* name, std::int64_t least, std::int64_t most);
  double number(const char* name);
  bool flag(const char* name);
  const nlohmann::ordered_json& list(const char* name, std::size_t most_entries);
  void bytes(const char* name, std::span<std::byte> to);  // hexadecimal digits of as many bytes
  void end() const;                                       // nothing is left
  [[noreturn]] static void refuse(std::string_view name, const std::string& why);

 private:
  const nlohmann::ordered_json& member(const char* name);

  const nlohmann::ordered_json& object_;
  std::set<std::string_view> read_;
};

// `text` as one that Fields::text takes: control characters become blanks, what is too long is cut.
std::string as_field(std::string_view text, std::size_t most_bytes = Fields::longest_text);

std::string to_hex(std::span<const std::byte> bytes);
void bytes_from_hex(std::string_view text, std::span<std::byte> to);  // InvalidWord unless it is exactly that

}  // namespace plait::comm
