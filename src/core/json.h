// Reads untrusted JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/names.h"

namespace plait {

// An iterator over the text of a parser that tells how far the parser has come.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, std::size_t* read) : at_(at), read_(read) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*read_;
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& x, const CountingIterator& y) { return x.at_ == y.at_; }

 private:
  const char* at_;
  std::size_t* read_;
};

// The fault of `text`, for which the library's parser threw `error`: "is not JSON (at byte 12)".
std::string json_problem(std::string_view text, const nlohmann::json::exception& error);

// The limit on nested arrays and objects. A level takes many times the memory of its bracket, and a stack frame of each
// recursive reader.
inline constexpr int deepest_json = 100;

// Parses `text` as a Json of the library's. `refuse`, which throws, gets the fault, such as "is not JSON (at byte 12)".
// `watch`, which may throw too, is called as the library's parser_callback_t; `read`: the parser's position at that time, in
// bytes.
template <typename Json = nlohmann::json, typename Refuse>
Json parse_json(std::string_view text, const Refuse& refuse, const typename Json::parser_callback_t& watch = nullptr,
                std::size_t* read = nullptr) {
  // The library's parser takes a zero byte for the end of the text.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos)
    refuse("is not JSON (at byte " + std::to_string(zero + 1) + ")");
  std::size_t unwanted = 0;
  std::size_t* const count = read ? read : &unwanted;
  const auto bounded = [&](int depth, typename Json::parse_event_t event, Json& value) {
    using Event = typename Json::parse_event_t;
    if (depth >= deepest_json && (event == Event::object_start || event == Event::array_start))
      refuse("is nested deeper than " + std::to_string(deepest_json) + " levels");
    return watch == nullptr || watch(depth, event, value);
  };
  std::string problem;
  try {
    return Json::parse(CountingIterator(text.data(), count), CountingIterator(text.data() + text.size(), count), bounded);
  } catch (const nlohmann::json::exception& error) {
    problem = json_problem(text, error);
  }
  refuse(problem);
  throw InternalError("parse_json: what refuses a text has to throw");
}

// A `watch` that refuses objects with a repeated name: readers would differ on which of the two counts. `refuse`, which throws,
// gets the repeated name and the number of objects and lists around it: 1 in the outermost object.
nlohmann::json::parser_callback_t unique_keys(std::function<void(const std::string& key, int depth)> refuse);

// ConfigError naming the file if it cannot be read (followed by `hint` and the reason), is not a regular file, is longer than
// `most_bytes` or is not JSON that parse_json accepts.
nlohmann::json read_json_file(const std::string& path, std::uint64_t most_bytes, const std::string& hint = "");

// A document: its name in messages, the rules for all of its values, and how a wrong value is refused.
struct JsonSource {
  std::string name;                    // a file, "points.jsonl:3"
  std::string remedy = {};             // at the end of every message: "; measure again"
  bool known_keys_only = false;        // a record refuses keys that it does not declare
  bool null_is_missing = true;         // false: null is a value, of the wrong type
  bool control_characters = true;      // texts may contain them
  std::size_t longest_text = 1 << 16;  // bytes, unless the reader says otherwise
  // Throws. Without it: ConfigError "NAME: 'PATH' is VALUE: RULE". `value` is cut to a few bytes; empty: it is missing.
  using Refuse = std::function<void(const std::string& path, const std::string& value, const std::string& rule)>;
  Refuse refuse = {};

  // Refuses with one ConfigProblem, whose path is "NAME: PATH".
  static Refuse as_problem(std::string name);
};

// A value of a JSON document that someone else may have written, with its place there: each is asked for by name, type and
// range. Refers to the document and its source. `Json`: nlohmann::json or nlohmann::ordered_json.
template <typename Json>
class BasicJsonField {
 public:
  BasicJsonField(const Json& json, const JsonSource& source, std::string path = "")
      : json_(&json), source_(&source), path_(std::move(path)) {}

  // `rule`: "must be a number", as it follows the value in a message.
  [[noreturn]] void refuse(const std::string& rule) const;
  [[noreturn]] void refuse(std::string_view key, const std::string& rule) const { (*this)[key].refuse(rule); }

  const Json& json() const { return *json_; }  // null if it is missing
  const JsonSource& source() const { return *source_; }
  const std::string& path() const { return path_; }  // "facts.layout", "nodes[3].name"; "" for the document
  bool is_there() const { return json_ != &nothing() && !(source_->null_is_missing && json_->is_null()); }
  bool has(std::string_view key) const { return (*this)[key].is_there(); }

  BasicJsonField operator[](std::string_view key) const;  // is_there() or not; refuses a value that is no object
  std::vector<BasicJsonField> items(std::size_t most = no_limit) const;
  std::vector<std::pair<std::string, BasicJsonField>> members(std::size_t most = no_limit) const;

  std::string text() const { return text(source_->longest_text); }
  std::string text(std::size_t most_bytes) const { return text(most_bytes, source_->control_characters); }
  std::string text(std::size_t most_bytes, bool control_characters) const;
  bool flag() const;
  std::int64_t whole(std::int64_t least, std::int64_t most) const;
  std::uint64_t natural() const;
  double number(double least = -no_bound, double most = no_bound) const;  // finite even without bounds
  template <Named E>
  E choice() const {
    const std::optional<E> value = named<E>(text(no_limit));
    if (!value) refuse("must be " + names_listed<E>());
    return *value;
  }
  // `otherwise` if it is missing.
  bool flag_or(bool otherwise) const { return is_there() ? flag() : otherwise; }
  std::string text_or(const std::string& otherwise) const { return is_there() ? text() : otherwise; }
  std::int64_t whole_or(std::int64_t otherwise, std::int64_t least, std::int64_t most) const {
    return is_there() ? whole(least, most) : otherwise;
  }
  double number_or(double otherwise, double least, double most) const { return is_there() ? number(least, most) : otherwise; }

  void expect_object() const;
  void expect_only(const std::vector<std::string>& keys) const;

  static constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
  static constexpr double no_bound = std::numeric_limits<double>::max();

 private:
  static const Json& nothing();

  const Json* json_;
  const JsonSource* source_;
  std::string path_;
};

extern template class BasicJsonField<nlohmann::json>;
extern template class BasicJsonField<nlohmann::ordered_json>;

using JsonField = BasicJsonField<nlohmann::ordered_json>;

}  // namespace plait
