// Reads a JSON object from a peer, member by member and strictly: exactly the expected members, each within its limits.
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

// What is wrong with a word. Readers (from_json) throw it; a Meeting adds the rank and the topic.
class InvalidWord : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Fields {
 public:
  static constexpr std::size_t longest_text = 512;

  // This and all members throw InvalidWord, naming the member, if the object or one of its members is not as expected.
  explicit Fields(const nlohmann::ordered_json& object);

  // Without control characters; `most_bytes` long at most.
  std::string text(const char* name, std::size_t most_bytes = longest_text);
  std::int64_t integer(const char* name, std::int64_t least, std::int64_t most);
  double number(const char* name);
  bool flag(const char* name);
  const nlohmann::ordered_json& list(const char* name, std::size_t most_entries);
  void bytes(const char* name, std::span<std::byte> to);  // hexadecimal digits for exactly to.size() bytes
  void end() const;                                       // every member has been read
  [[noreturn]] static void refuse(std::string_view name, const std::string& why);

 private:
  const nlohmann::ordered_json& member(const char* name);

  const nlohmann::ordered_json& object_;
  std::set<std::string_view> read_;
};

// Makes `text` acceptable to Fields::text: control characters become blanks, and a text that is too long is cut.
std::string as_field(std::string_view text, std::size_t most_bytes = Fields::longest_text);

std::string to_hex(std::span<const std::byte> bytes);
void bytes_from_hex(std::string_view text, std::span<std::byte> to);  // InvalidWord unless `text` fills `to` exactly

}  // namespace plait::comm
