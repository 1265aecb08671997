#include "usage.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "config/schema.h"
#include "config/suggestion.h"
#include "core/error.h"
#include "core/terminal.h"

namespace plait {
namespace {

constexpr int column_of_descriptions = 26;

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return entry(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option));
  }
  // Only the part after the name.
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    const std::string type = option->get_type_name();  // "TEXT:{auto,cpu}", "INT:INT in [1 - 1024]"
    const std::size_t rule = type.find(':');
    const bool has_names = rule != std::string::npos && type.compare(rule, 2, ":{") == 0;
    const bool repeats = option->get_expected_max() == CLI::detail::expected_max_vector_size;
    std::string value = type.substr(0, rule);
    if (has_names) {
      value = type.substr(rule + 1);
      for (std::size_t at = 0; (at = value.find(',', at)) != std::string::npos; ++at) value.insert(at + 1, " ");
    }
    return " " + value + (repeats ? " ..." : "");
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    const auto add = [&](const std::string& more) { text += (text.empty() ? "" : "; ") + more; };
    const auto listed = [](const std::set<CLI::Option*>& options) {
      std::set<std::string> names;  // in an order that does not depend on addresses
      for (const CLI::Option* other : options) names.insert(other->get_name());
      return fmt::format("{}", fmt::join(names, ", "));
    };
    if (option->get_required()) add("required");
    if (!option->get_needs().empty()) add("only with " + listed(option->get_needs()));
    if (!option->get_excludes().empty()) add("not with " + listed(option->get_excludes()));
    if (!option->get_default_str().empty()) add("default: " + option->get_default_str());
    return text;
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return entry(command->get_display_name(true), command->get_description());
  }
  std::string make_description(const CLI::App* command) const override {
    return folded(CLI::Formatter::make_description(command), width());
  }
  std::string make_usage(const CLI::App* command, std::string name) const override {
    return folded(CLI::Formatter::make_usage(command, std::move(name)), width(), 4);
  }

 private:
  static int width() { return terminal_width(stdout); }

  static std::string entry(const std::string& name, const std::string& description) {
    std::string text = folded("  " + name, width(), 6);
    const int behind = column_of_descriptions - static_cast<int>(text.size());
    text += behind > 0 ? std::string(static_cast<std::size_t>(behind), ' ') : "\n" + std::string(column_of_descriptions, ' ');
    // folded() puts spaces before a paragraph's further lines.
    const std::string lines = folded(std::string(column_of_descriptions, ' ') + description, width(), column_of_descriptions);
    return text + lines.substr(column_of_descriptions) + "\n";
  }
};

std::vector<CLI::App*> commands_of(const CLI::App& app) {
  return const_cast<CLI::App&>(app).get_subcommands([](const CLI::App* command) { return !command->get_name().empty(); });
}

std::string suggested(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string nearest = nearest_of(word, candidates);
  return nearest.empty() ? "" : "; did you mean '" + nearest + "'?";
}

std::string no_such_command(const CLI::App& of, const std::string& word, const std::string& path) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(of)) names.push_back(command->get_name());
  const std::string help = of.get_parent() == nullptr ? "plait help" : "plait help" + path.substr(path.find(' '));
  return "there is no command '" + word + "' of " + path + suggested(word, names) + " (" + help + " lists them)";
}

// Considers keys of the configuration too, if the command takes --set: many users know them as options elsewhere.
std::string no_such_option(const CLI::App& command, const std::string& argument, const std::string& path) {
  const std::string option = argument.substr(0, argument.find('='));
  std::map<std::string, std::string> meant;  // by the words of a name
  for (const CLI::Option* known : command.get_options()) {
    for (const std::string& name : known->get_lnames()) meant[name] = "--" + name;
  }
  if (meant.contains("set")) {
    for (const config::Field& field : config::fields()) meant[field.path] = "--set " + field.path + "=...";
  }
  std::vector<std::string> candidates;
  for (const auto& [name, text] : meant) candidates.push_back(name);
  std::string word = option.substr(std::min(option.find_first_not_of('-'), option.size()));
  std::string nearest = nearest_of(word, candidates);
  // Keys have underscores where options have hyphens.
  std::ranges::replace(word, '-', '_');
  if (nearest.empty()) nearest = nearest_of(word, candidates);
  return path + " has no option " + option + (nearest.empty() ? "" : "; did you mean '" + meant.at(nearest) + "'?");
}

std::string help_hint(const std::string& path) {
  const std::size_t space = path.find(' ');
  return "\nplait: see plait help" + (space == std::string::npos ? "" : path.substr(space));
}

}  // namespace

CLI::Validator number_in(double least, double most) {
  return {[least, most](const std::string& text) {
            double value = 0;
            const bool is_number = CLI::detail::lexical_cast(text, value);
            if (is_number && value >= least && value <= most) return std::string();
            return fmt::format("must be a number from {} to {}, not {}", least, most, text);
          },
          "number"};
}

CLI::Validator whole_number_in(std::int64_t least, std::uint64_t most) {
  return {[least, most](const std::string& text) {
            const char *begin = text.data(), *const end = begin + text.size();
            const std::string_view digits = std::string_view(text).substr(text.starts_with('-'));
            std::int64_t negative = 0;
            std::uint64_t value = 0;
            const auto read =
                text.starts_with('-') ? std::from_chars(begin, end, negative) : std::from_chars(begin, end, value);
            const bool is_number = read.ec == std::errc() && read.ptr == end && (digits == "0" || !digits.starts_with('0'));
            const bool is_within =
                text.starts_with('-') ? negative >= least : std::cmp_greater_equal(value, least) && value <= most;
            if (is_number && is_within) return std::string();
            return fmt::format("must be a whole number from {} to {}, not {}", least, most, text);
          },
          "whole number"};
}

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

void add_help_command(CLI::App& app, int& status) {
  auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* help = app.add_subcommand("help", "Show the help of a command");
  help->add_option("COMMAND", *words, "A command, and one of its own: bench p2p; default: all commands");
  help->callback([words, &app, &status] {
    const CLI::App* command = &app;
    std::string path = "plait";
    for (const std::string& word : *words) {
      const CLI::App* found = nullptr;
      for (const CLI::App* candidate : commands_of(*command)) {
        if (candidate->check_name(word)) found = candidate;
      }
      if (found == nullptr) throw ConfigError(no_such_command(*command, word, path));
      command = found;
      path += " " + word;
    }
    std::cout << command->get_formatter()->make_help(command, path, CLI::AppFormatMode::Normal);
    status = 0;
  });
}

std::string usage_text(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string path = "plait";
  while (true) {
    const std::vector<std::string> extra = command->remaining();
    if (!extra.empty()) {
      const std::string& first = extra.front();
      if (first.starts_with('-')) return "plait: " + no_such_option(*command, first, path) + help_hint(path) + "\n";
      if (!commands_of(*command).empty()) return "plait: " + no_such_command(*command, first, path) + "\n";
      return "plait: " + path + " takes no further argument '" + first + "'" + help_hint(path) + "\n";
    }
    const std::vector<CLI::App*> called = command->get_subcommands();
    if (called.empty()) break;
    command = called.front();
    path += " " + command->get_name();
  }
  if (command->get_require_subcommand_min() > 0)
    return command->get_formatter()->make_help(command, path, CLI::AppFormatMode::Normal);
  return "plait: " + std::string(error.what()) + help_hint(path) + "\n";
}

}  // namespace plait
