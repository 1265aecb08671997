// Named values as lines of text, for what ranks tell each other through the rendezvous. Reading is strict: exactly the fields
// that were written, in their order and within their limits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace plait::comm::p2p {

class FieldWriter {
 public:
  // `value` is one line without control characters, of at most FieldReader::longest_value bytes (InternalError).
  void text(std::string_view name, std::string_view value);
  void integer(std::string_view name, std::int64_t value);
  void flag(std::string_view name, bool value) { integer(name, value ? 1 : 0); }
  const std::string& written() const { return written_; }

 private:
  std::string written_;
};

class FieldReader {
 public:
  static constexpr std::size_t longest_value = 512;

  // `what` names the text in messages: "facts of a rank".
  FieldReader(std::string text, std::string what) : text_(std::move(text)), what_(std::move(what)) {}

  // CommError where the next line is not `name` with a value of this kind.
  std::string text(std::string_view name);
  std::int64_t integer(std::string_view name, std::int64_t least, std::int64_t most);
  bool flag(std::string_view name) { return integer(name, 0, 1) == 1; }
  void end() const;  // CommError if anything is left to read
  [[noreturn]] void refuse(std::string_view name, const std::string& why) const;

 private:
  std::string text_;
  std::string what_;
  std::size_t position_ = 0;
};

// `text` as a value that FieldWriter accepts: control characters become blanks, and what is too long is cut off.
std::string as_field(std::string_view text);

}  // namespace plait::comm::p2p
