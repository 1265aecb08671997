// Patterns in Oniguruma's syntax, for PCRE2.
#include <algorithm>
#include <array>
#include <stdexcept>

#include <spdlog/fmt/fmt.h>

#include "data/huggingface/split_pattern.h"

namespace plait::data {
namespace {

// White_Space, within a class. PCRE2's \s with UCP would be the same and U+180E, which was a space until Unicode 6.3.
constexpr std::string_view white_space = R"(\t-\r\x{85}\p{Z})";

bool is_general_category(std::string_view name) {
  static constexpr std::array<std::string_view, 37> names = {
      "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe",
      "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co", "Cs", "Cn"};
  return std::ranges::find(names, name) != names.end();
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter_or_digit(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Translation {
 public:
  explicit Translation(std::string_view pattern) : pattern_(pattern) {
    while (at_ < pattern_.size()) step();
    if (in_class_) throw std::invalid_argument("a class that is not closed");
  }
  std::string result() && { return std::move(result_); }

 private:
  [[noreturn]] void refuse(std::string_view construct) const {
    throw std::invalid_argument(fmt::format("'{}' (at byte {})", construct, at_));
  }
  std::string_view rest() const { return pattern_.substr(at_); }
  char next(std::size_t ahead) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }
  void copy(std::size_t count) {
    result_ += pattern_.substr(at_, count);
    at_ += count;
  }

  void step() {
    const char c = pattern_[at_];
    if (c == '\\') return escape();
    if (in_class_) return class_member(c);
    if (c == '[') return open_class();
    if (c == '(') return open_group();
    if (c == ')' && groups_.size() > 0) groups_.pop_back();
    if (c == '{') return interval();
    if (c == '^' || c == '$') refuse(rest().substr(0, 1));  // Ruby's are of lines
    copy(1);
  }

  void open_class() {
    in_class_ = true;
    copy(next(1) == '^' ? 2 : 1);
    if (next(0) == ']') refuse("[]");
  }

  void class_member(char c) {
    if (c == '[') refuse("[ within a class");  // Ruby has classes in classes
    if (c == '&' && next(1) == '&') refuse("&&");
    if (c == ']') in_class_ = false;
    copy(1);
  }

  void open_group() {
    static constexpr std::array<std::string_view, 7> known = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    std::size_t length = 1;
    if (next(1) == '?') {
      const auto found = std::ranges::find_if(known, [&](std::string_view open) { return rest().starts_with(open); });
      if (found == known.end()) refuse(rest().substr(0, 3));
      length = found->size();
    } else if (next(1) == '*') {
      refuse("(*");
    }
    groups_.push_back(rest().starts_with("(?i:") || (!groups_.empty() && groups_.back()));
    copy(length);
  }

  // {n}, {n,} or {n,m}. What follows one means something else in Ruby.
  void interval() {
    std::size_t length = 1;
    while (is_digit(next(length))) ++length;
    const bool number = length > 1;
    if (next(length) == ',') ++length;
    while (is_digit(next(length))) ++length;
    if (!number || next(length) != '}') refuse("{");
    ++length;
    if (next(length) == '+' || next(length) == '?') refuse(rest().substr(0, length + 1));
    copy(length);
  }

  void escape() {
    const char c = next(1);
    const std::string_view two = rest().substr(0, 2);
    if (c == '\0') refuse("\\ at the end");
    if (c == 's') return space(in_class_ ? white_space : fmt::format("[{}]", white_space));
    if (c == 'S') return space(in_class_ ? R"(\S\x{180e})" : R"([\S\x{180e}])");
    if (c == 'p' || c == 'P') return property();
    if (c == 'u') return code_point(2, 4);
    if (c == 'x') return next(2) == '{' ? refuse("\\x{") : code_point(2, 2);
    if (std::string_view("dDrntfae").find(c) != std::string_view::npos) return copy(2);
    if (is_letter_or_digit(c)) refuse(two);
    if (static_cast<unsigned char>(c) >= 0x80) {  // a character of several bytes needs no escape
      ++at_;
      return copy(1);
    }
    copy(2);
  }

  void space(std::string_view as) {
    result_ += as;
    at_ += 2;
  }

  void property() {
    const auto end = rest().find('}');
    if (next(2) != '{' || end == std::string_view::npos) refuse(rest().substr(0, 2));
    std::string_view name = rest().substr(3, end - 3);
    if (name.starts_with('^')) name.remove_prefix(1);
    const bool cased = name == "Lu" || name == "Ll" || name == "Lt";
    if (!is_general_category(name) || (cased && !groups_.empty() && groups_.back())) refuse(rest().substr(0, end + 1));
    copy(end + 1);
  }

  // Of hexadecimal digits; \xHH of 80 and above is a byte in Ruby.
  void code_point(std::size_t from, std::size_t digits) {
    const std::string_view number = rest().substr(std::min(from, rest().size()), digits);
    if (number.size() < digits || number.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos ||
        (digits == 2 && number[0] > '7'))
      refuse(rest().substr(0, from + number.size()));
    result_ += fmt::format("\\x{{{}}}", number);
    at_ += from + digits;
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::vector<bool> groups_;  // whether case is ignored in it
  std::string result_;
};

}  // namespace

std::string pcre2_pattern(std::string_view oniguruma) { return Translation(oniguruma).result(); }

std::string pcre2_literal(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (!is_letter_or_digit(c) && static_cast<unsigned char>(c) < 0x80) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace plait::data
