// Help, and messages about arguments that no command takes.
#pragma once

#include <CLI/CLI.hpp>
#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace plait {

// Lays help out for the width of stdout's terminal.
std::shared_ptr<CLI::FormatterBase> help_formatter();

// Validates an option's value: a number with a fraction, finite and within bounds.
CLI::Validator number_in(double least, double most);

// Validates a whole number for the type of `value`: at least `least`. CLI11 alone turns a number beyond the type into another
// one, and reads 010 as 8.
CLI::Validator whole_number_in(std::int64_t least, std::uint64_t most);
template <std::integral T>
CLI::Validator whole_number(const T& /*value*/, std::int64_t least = std::numeric_limits<T>::min()) {
  return whole_number_in(least, static_cast<std::uint64_t>(std::numeric_limits<T>::max()));
}
template <std::integral T>
CLI::Validator whole_number(const std::vector<T>& /*values*/, std::int64_t least) {
  return whole_number(T{}, least);
}
template <std::integral T>
CLI::Validator whole_number(const std::optional<T>& /*value*/, std::int64_t least) {
  return whole_number(T{}, least);
}

// `plait help [COMMAND]`. Added last.
void add_help_command(CLI::App& app, int& status);

// The text for stderr about refused arguments: the error in the first of them and the probable meaning, or the help of a
// command that has subcommands and was given none.
std::string usage_text(const CLI::App& app, const CLI::ParseError& error);

}  // namespace plait
