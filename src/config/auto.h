// The value of a key that may be `auto`: given, or left open for plait to decide.
#pragma once

#include <concepts>
#include <optional>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

#include "core/error.h"

namespace plait {

// `auto` itself.
struct Automatic {
  friend constexpr bool operator==(Automatic, Automatic) = default;
};
inline constexpr Automatic automatic{};

// Reading a value that is still open is an InternalError: who may meet one asks is_auto(), value_or() or given(). Equality
// reads nothing: an open value equals no value, and another open one.
template <typename T>
class Auto {
 public:
  constexpr Auto() = default;
  constexpr Auto(Automatic) {}
  constexpr Auto(T value) : value_(std::move(value)) {}
  // Nothing: `auto`.
  constexpr explicit Auto(std::optional<T> value) : value_(std::move(value)) {}

  constexpr bool is_auto() const { return !value_.has_value(); }
  constexpr const T& value(std::source_location where = std::source_location::current()) const {
    if (is_auto()) require(false, "a value that is `auto` was read as if decided", where);
    return *value_;
  }
  // Numbers alone: an optional would take any other type for given.
  constexpr operator const T&() const
    requires std::is_arithmetic_v<T>
  {
    return value();
  }
  constexpr T value_or(T otherwise) const { return value_.value_or(std::move(otherwise)); }
  // Nothing: `auto`.
  constexpr const std::optional<T>& given() const { return value_; }

  friend constexpr bool operator==(const Auto&, const Auto&) = default;
  template <typename U>
    requires(!std::same_as<U, Auto> && std::convertible_to<const U&, T>)
  friend constexpr bool operator==(const Auto& one, const U& other) {
    return one.value_ == other;
  }

 private:
  std::optional<T> value_;
};

// "auto", or the given value as a file has it.
template <typename T>
  requires(std::integral<T> || std::is_enum_v<T>)
std::string to_string(const Auto<T>& held) {
  if (held.is_auto()) return "auto";
  if constexpr (std::integral<T>) {
    return std::to_string(held.value());
  } else {
    return to_string(held.value());
  }
}

}  // namespace plait
