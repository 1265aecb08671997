// Translates patterns from Oniguruma's syntax to PCRE2's.
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "data/huggingface/split_pattern.h"

namespace plait::data {
namespace {

// White_Space, within a class. PCRE2's \s with UCP would add U+180E, which was a space until Unicode 6.3.
constexpr std::string_view white_space = R"(\t-\r\x{85}\p{Z})";

bool is_general_category(std::string_view name) {
  static constexpr std::array<std::string_view, 37> names = {
      "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe",
      "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co", "Cs", "Cn"};
  return std::ranges::find(names, name) != names.end();
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter_or_digit(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

using CodePoint = utf8proc_int32_t;

// The case-folded form of a character: one to three characters, such as "ss" for U+DF.
std::vector<CodePoint> folded(CodePoint character) {
  std::array<CodePoint, 4> to{};
  const utf8proc_ssize_t count = utf8proc_decompose_char(character, to.data(), std::ssize(to), UTF8PROC_CASEFOLD, nullptr);
  if (count < 1 || count > std::ssize(to)) return {character};
  return {to.begin(), to.begin() + count};
}

// Ignoring case, Oniguruma matches some characters with longer strings: U+DF with "ss", the ligatures with "ff", "fi", "st".
// PCRE2 matches a character with one character only.
struct LongFolding {
  CodePoint character;
  std::vector<CodePoint> as;
};

const std::vector<LongFolding>& long_foldings() {
  static const std::vector<LongFolding> all = [] {
    constexpr CodePoint end = 0x10000;  // no entry is beyond
    std::vector<LongFolding> found;
    for (CodePoint character = 0x80; character < end; ++character) {
      if (std::vector<CodePoint> as = folded(character); as.size() > 1) found.push_back({character, std::move(as)});
    }
    return found;
  }();
  return all;
}

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

  bool ignores_case() const { return !groups_.empty() && groups_.back(); }

  void step() {
    const char c = pattern_[at_];
    if (c == '\\') return escape();
    if (in_class_) return class_member(c);
    if (c == '[') return open_class();
    if (c == '(') return open_group();
    if (c == ')' && groups_.size() > 0) groups_.pop_back();
    if (c == ')') return copy(1);
    if (c == '{') return interval();
    if (c == '^' || c == '$') refuse(rest().substr(0, 1));  // in Ruby they match at lines
    if (std::string_view(".|*+?").find(c) == std::string_view::npos) return character(0);
    end_literals();
    copy(1);
  }

  void open_class() {
    in_class_ = true;
    end_literals();
    copy(next(1) == '^' ? 2 : 1);
    if (next(0) == ']') refuse("[]");
  }

  void class_member(char c) {
    if (c == '[') refuse("[ within a class");  // Ruby has classes in classes
    if (c == '&' && next(1) == '&') refuse("&&");
    if (c == ']') in_class_ = false;
    if (c == ']') return copy(1);
    if (c != '-' || !range_from_ || next(1) == ']') return character(0);
    in_range_ = true;
    copy(1);
  }

  // Reads a literal character, after `before` bytes that are dropped.
  void character(std::size_t before) {
    at_ += before;
    CodePoint value = 0;
    const utf8proc_ssize_t bytes =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(rest().data()), std::ssize(rest()), &value);
    if (bytes < 1) refuse("a byte that is not UTF-8");
    literal(value);
    copy(static_cast<std::size_t>(bytes));
  }

  // Called before a literal is copied: refuses one that Oniguruma would match with another number of characters.
  void literal(CodePoint value) {
    if (in_class_) {
      const CodePoint from = std::exchange(in_range_, false) ? *range_from_ : value;
      range_from_ = value;
      const auto is_within = [&](const LongFolding& folding) {
        return folding.character >= from && folding.character <= value;
      };
      if (ignores_case() && std::ranges::any_of(long_foldings(), is_within))
        refuse_folding("a class with a character that folds to more than one");
      return;
    }
    if (!ignores_case()) return literals_.clear();
    const std::vector<CodePoint> as = folded(value);
    if (as.size() > 1) refuse_folding(fmt::format("U+{:04X}, which folds to more than one character", value));
    literals_.push_back(as.front());
    for (const LongFolding& folding : long_foldings()) {
      if (literals_.size() < folding.as.size()) continue;
      if (std::ranges::equal(std::span(literals_).last(folding.as.size()), folding.as))
        refuse_folding(fmt::format("the characters that U+{:04X} folds to", folding.character));
    }
  }
  [[noreturn]] void refuse_folding(const std::string& what) const {
    throw std::invalid_argument(fmt::format("'(?i:' around {} (at byte {})", what, at_));
  }
  // Ends a run of literal characters.
  void end_literals() {
    literals_.clear();
    range_from_.reset();
    in_range_ = false;
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
    groups_.push_back(rest().starts_with("(?i:") || ignores_case());
    if (!rest().starts_with("(?:") && !rest().starts_with("(?i:")) end_literals();  // else Oniguruma may join what is in it
    copy(length);
  }

  // {n}, {n,} or {n,m}. A quantifier after one means something else in Ruby.
  void interval() {
    std::size_t length = 1;
    while (is_digit(next(length))) ++length;
    const bool number = length > 1;
    if (next(length) == ',') ++length;
    while (is_digit(next(length))) ++length;
    if (!number || next(length) != '}') refuse("{");
    ++length;
    end_literals();
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
    if (std::string_view("dDrntfae").find(c) != std::string_view::npos) {
      end_literals();
      if (c != 'd' && c != 'D') range_from_ = 0;  // a control character, which may begin a range
      return copy(2);
    }
    if (is_letter_or_digit(c)) refuse(two);
    if (static_cast<unsigned char>(c) >= 0x80) return character(1);  // a multi-byte character needs no escape
    literal(c);
    copy(2);
  }

  void space(std::string_view as) {
    end_literals();
    result_ += as;
    at_ += 2;
  }

  void property() {
    const auto end = rest().find('}');
    if (next(2) != '{' || end == std::string_view::npos) refuse(rest().substr(0, 2));
    std::string_view name = rest().substr(3, end - 3);
    if (name.starts_with('^')) name.remove_prefix(1);
    const bool cased = name == "Lu" || name == "Ll" || name == "Lt";
    if (!is_general_category(name) || (cased && ignores_case())) refuse(rest().substr(0, end + 1));
    end_literals();
    copy(end + 1);
  }

  // A code point in hexadecimal digits; \xHH of 80 and above is a byte in Ruby.
  void code_point(std::size_t from, std::size_t digits) {
    const std::string_view number = rest().substr(std::min(from, rest().size()), digits);
    if (number.size() < digits || number.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos ||
        (digits == 2 && number[0] > '7'))
      refuse(rest().substr(0, from + number.size()));
    literal(std::stoi(std::string(number), nullptr, 16));
    result_ += fmt::format("\\x{{{}}}", number);
    at_ += from + digits;
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::vector<bool> groups_;             // true if the group ignores case
  std::vector<CodePoint> literals_;      // the preceding literal characters, folded, where case is ignored
  std::optional<CodePoint> range_from_;  // in a class: the previous character
  bool in_range_ = false;                // behind its '-'
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
