#include "comm/p2p/text_fields.h"

#include <algorithm>
#include <charconv>

#include "core/error.h"

namespace plait::comm::p2p {
namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

}  // namespace

void FieldWriter::text(std::string_view name, std::string_view value) {
  require(value.size() <= FieldReader::longest_value && std::none_of(value.begin(), value.end(), is_control),
          "a field of text is too long or has control characters; as_field() mends that");
  written_.append(name).append("=").append(value).append("\n");
}

void FieldWriter::integer(std::string_view name, std::int64_t value) { text(name, std::to_string(value)); }

std::string FieldReader::text(std::string_view name) {
  const std::string_view rest = std::string_view(text_).substr(position_);
  const std::size_t end = rest.substr(0, name.size() + 1 + longest_value + 1).find('\n');
  if (end == std::string_view::npos) refuse(name, "is missing or too long");
  const bool belongs = end > name.size() && rest.substr(0, name.size()) == name && rest[name.size()] == '=';
  if (!belongs) refuse(name, "is not where it belongs");
  const std::string_view value = rest.substr(name.size() + 1, end - name.size() - 1);
  if (std::any_of(value.begin(), value.end(), is_control)) refuse(name, "has control characters");
  position_ += end + 1;
  return std::string(value);
}

std::int64_t FieldReader::integer(std::string_view name, std::int64_t least, std::int64_t most) {
  const std::string value = text(name);
  std::int64_t number = 0;
  const std::errc error = std::from_chars(value.data(), value.data() + value.size(), number).ec;
  // Written back, so that "007" and "-0" are not numbers that nobody wrote.
  if (error != std::errc() || std::to_string(number) != value) refuse(name, "is not a number");
  if (number < least || number > most) refuse(name, "is out of range (" + value + ")");
  return number;
}

void FieldReader::end() const {
  if (position_ != text_.size()) throw CommError(what_ + ": there is more than there should be");
}

void FieldReader::refuse(std::string_view name, const std::string& why) const {
  throw CommError(what_ + ": '" + std::string(name) + "' " + why + "; do all ranks run the same plait?");
}

std::string as_field(std::string_view text) {
  std::string result(text.substr(0, FieldReader::longest_value));
  std::replace_if(result.begin(), result.end(), is_control, ' ');
  return result;
}

}  // namespace plait::comm::p2p
