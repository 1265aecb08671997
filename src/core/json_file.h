// Reads untrusted JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/error.h"

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

// ConfigError naming the file if it cannot be read (followed by `hint` and the reason), is not a regular file, is longer than
// `most_bytes` or is not JSON that parse_json accepts.
nlohmann::json read_json_file(const std::string& path, std::uint64_t most_bytes, const std::string& hint = "");

}  // namespace plait
