// Parses numbers in untrusted text: environment variables, options, parts of addresses.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace plait {

// The number in `text`: digits alone (a minus in front for negative ones), with nothing before or after; nullopt if it is not a
// number, or does not fit.
template <std::integral Number>
std::optional<Number> whole_number(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

// "5%" or "0.5%" as a fraction, 0 to 1; nullopt for anything else.
std::optional<double> percentage(std::string_view text);

}  // namespace plait
