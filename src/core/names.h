// Enumerations with names, as configurations, reports and messages write them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/error.h"

namespace plait {

template <typename E>
struct Name {
  E value;
  std::string_view text;
};

// Specialised next to an enumeration that has names: one row per value, in reading order.
template <typename E>
inline constexpr std::nullptr_t names = nullptr;

template <typename E>
concept Named = std::is_enum_v<E> && !std::is_same_v<std::remove_cv_t<decltype(names<E>)>, std::nullptr_t>;

// InternalError for a value without a name.
template <Named E>
std::string to_string(E value) {
  const auto row = std::find_if(names<E>.begin(), names<E>.end(), [value](const Name<E>& n) { return n.value == value; });
  require(row != names<E>.end(), "an enumeration's value has no name");
  return std::string(row->text);
}

// The value of that name; nullopt if there is none.
template <Named E>
std::optional<E> named(std::string_view text) {
  const auto row = std::find_if(names<E>.begin(), names<E>.end(), [text](const Name<E>& n) { return n.text == text; });
  return row == names<E>.end() ? std::nullopt : std::optional(row->value);
}

// "a, b or c", in their order.
template <Named E>
std::string names_listed(std::string_view last = " or ") {
  std::string text;
  for (std::size_t n = 0; n < names<E>.size(); ++n) {
    if (n > 0) text += n + 1 < names<E>.size() ? ", " : last;
    text += names<E>[n].text;
  }
  return text;
}

}  // namespace plait
