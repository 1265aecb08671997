// Help, and what is said of arguments that no command takes.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace plait {

// Lays help out for the width of stdout's terminal.
std::shared_ptr<CLI::FormatterBase> help_formatter();

// Of an option's value.
CLI::Validator above_zero();
CLI::Validator not_negative();

// `plait help [COMMAND]`. Added last.
void add_help_command(CLI::App& app, int& status);

// What to print on stderr of arguments that were refused: what is wrong with the first of them and what may have been meant,
// or the help of a command of commands that was given none.
std::string usage_text(const CLI::App& app, const CLI::ParseError& error);

}  // namespace plait
