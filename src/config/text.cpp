// Values as YAML text.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <spdlog/fmt/fmt.h>

#include "config/schema.h"

namespace plait::config {
namespace {

std::string real_text(double value) {
  std::array<char, 64> buffer;
  const double magnitude = std::abs(value);
  const bool fixed = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e15);
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  std::string text(buffer.data(), end);
  // YAML 1.1 readers take "1e-05" for a string; "1.0e-05" is a number to everyone.
  if (const auto e = text.find('e'); e != std::string::npos && text.find('.') == std::string::npos) text.insert(e, ".0");
  return text;
}

// Plain only where no YAML reader can take it for anything but a string.
bool is_plain(const std::string& text) {
  static constexpr std::array reserved = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (text.empty() || !is_letter(text[0])) return false;
  std::string lower = text;
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (std::ranges::find(reserved, lower) != reserved.end()) return false;
  return std::ranges::all_of(
      text, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' || c == '/'; });
}

std::string string_text(const std::string& text) {
  if (is_plain(text)) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    switch (c) {
      case '"': quoted += "\\\""; break;
      case '\\': quoted += "\\\\"; break;
      case '\n': quoted += "\\n"; break;
      case '\t': quoted += "\\t"; break;
      case '\r': quoted += "\\r"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        } else {
          quoted += c;
        }
    }
  }
  return quoted + '"';
}

struct Writer {
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(std::int64_t v) const { return std::to_string(v); }
  std::string operator()(std::uint64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const { return real_text(v); }
  std::string operator()(const std::string& v) const { return string_text(v); }
  std::string operator()(const AxisConfig& axis) const {
    std::string text = string_text(axis.key) + ": [";
    for (std::size_t i = 0; i < axis.values.size(); ++i) text += (i == 0 ? "" : ", ") + axis.values[i].yaml;
    return text + "]";
  }
  std::string operator()(const std::vector<AxisConfig>& axes) const {
    std::string text = "{";
    for (std::size_t i = 0; i < axes.size(); ++i) text += (i == 0 ? "" : ", ") + (*this)(axes[i]);
    return text + "}";
  }
  std::string operator()(const DataSourceConfig& v) const {
    return "{files: " + (*this)(v.files) + ", weight: " + real_text(v.weight) + "}";
  }
  std::string operator()(Automatic) const { return "auto"; }
  std::string operator()(const FileValue& v) const { return "{file: " + string_text(v.path) + "}"; }
  template <typename T>
  std::string operator()(const std::vector<T>& list) const {
    std::string text = "[";
    for (std::size_t i = 0; i < list.size(); ++i) text += (i == 0 ? "" : ", ") + (*this)(list[i]);
    return text + "]";
  }
};

}  // namespace

std::string yaml_text(const Value& value) { return std::visit(Writer{}, value); }

AxisValue axis_value(const std::string& scalar, bool quoted) {
  // Numbers, names and paths, which no flow of YAML takes apart.
  const auto is_safe = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' ||
           c == '+' || c == '/';
  };
  const bool plain = !quoted && !scalar.empty() && std::ranges::all_of(scalar, is_safe);
  // string_text leaves a name without quotes, which a quoted one is too.
  const std::string text = string_text(scalar);
  return {plain ? scalar : text.starts_with('"') || !quoted ? text : '"' + scalar + '"', scalar};
}

bool is_automatic(const Value& value) { return std::holds_alternative<Automatic>(value); }

bool is_left_to_planner(const Field& field, const Config& config) { return field.planned && is_automatic(field.get(config)); }

}  // namespace plait::config
