#include "core/json.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/file.h"
#include "core/message.h"
#include "core/utf8.h"

namespace plait {

std::string json_problem(std::string_view text, const nlohmann::json::exception& error) {
  if (const auto offset = first_invalid_utf8(text)) return "is not UTF-8 text (at byte " + std::to_string(*offset + 1) + ")";
  if (const auto* parse = dynamic_cast<const nlohmann::json::parse_error*>(&error))
    return "is not JSON (at byte " + std::to_string(parse->byte) + ")";
  return "has a number beyond 1.8e308";
}

nlohmann::json::parser_callback_t unique_keys(std::function<void(const std::string& key, int depth)> refuse) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> open;  // the names of each object that has begun and not ended
  return [refuse = std::move(refuse), open = std::move(open)](int depth, Event event, const nlohmann::json& value) mutable {
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && !open.back().insert(value.get<std::string>()).second) refuse(value.get<std::string>(), depth);
    return true;
  };
}

nlohmann::json read_json_file(const std::string& path, std::uint64_t most_bytes, const std::string& hint) {
  std::string text;
  try {
    text = read_text(path, most_bytes);
  } catch (const ConfigError& error) {
    throw ConfigError(path + ": cannot be read" + hint + " (" + error.what() + ")");
  }
  return parse_json(text, [&](const std::string& problem) { throw ConfigError(path + ": " + problem); });
}

namespace {

constexpr std::size_t most_shown = 60, most_path = 256;  // bytes of a value and of its place in a message

template <typename Json>
std::string shown(const Json& json) {
  if (json.is_object() || json.is_array()) return json.is_object() ? "{...}" : "[...]";
  return printable(json.is_string() ? json.template get_ref<const std::string&>() : json.dump(), most_shown);
}

std::string range(double least, double most) {
  constexpr double no_bound = std::numeric_limits<double>::max();
  if (least > -no_bound && most < no_bound) return fmt::format("a number from {:g} to {:g}", least, most);
  return least > -no_bound ? fmt::format("a number of at least {:g}", least) : "a finite number";
}

}  // namespace

JsonSource::Refuse JsonSource::as_problem(std::string name) {
  return [name = std::move(name)](const std::string& path, const std::string& value, const std::string& rule) {
    throw ConfigError({{name + ": " + (path.empty() ? "it" : path), value, rule, "", 0}});
  };
}

template <typename Json>
const Json& BasicJsonField<Json>::nothing() {
  static const Json null;
  return null;
}

template <typename Json>
void BasicJsonField<Json>::refuse(const std::string& rule) const {
  const bool missing = json_ == &nothing();
  const std::string path = printable(path_, most_path), value = missing ? "" : shown(*json_);
  // Rules that say so themselves need no second sentence.
  const std::string words = (missing && rule.starts_with("must") ? "is missing: " : "") + printable(rule) + source_->remedy;
  if (source_->refuse) source_->refuse(path, value, words);
  const std::string quote = json_->is_string() ? "\"" : "";
  throw ConfigError(fmt::format("{}: {} {}{}", source_->name, path.empty() ? "it" : "'" + path + "'",
                                missing ? "" : "is " + quote + value + quote + ": ", words));
}

template <typename Json>
void BasicJsonField<Json>::expect_object() const {
  if (!json_->is_object()) refuse("must be an object");
}

template <typename Json>
void BasicJsonField<Json>::expect_only(const std::vector<std::string>& keys) const {
  for (const auto& [key, value] : json_->items()) {
    if (std::ranges::find(keys, key) == keys.end()) refuse(key, "unknown key");
  }
}

template <typename Json>
BasicJsonField<Json> BasicJsonField<Json>::operator[](std::string_view key) const {
  expect_object();
  const auto found = json_->find(key);
  return {found == json_->end() ? nothing() : *found, *source_, path_ + (path_.empty() ? "" : ".") + std::string(key)};
}

template <typename Json>
std::vector<BasicJsonField<Json>> BasicJsonField<Json>::items(std::size_t most) const {
  if (!json_->is_array()) refuse("must be a list");
  if (json_->size() > most) refuse(fmt::format("must be a list of at most {}, not {}", most, json_->size()));
  std::vector<BasicJsonField> items;
  items.reserve(json_->size());
  for (const Json& item : *json_) items.emplace_back(item, *source_, fmt::format("{}[{}]", path_, items.size()));
  return items;
}

template <typename Json>
std::vector<std::pair<std::string, BasicJsonField<Json>>> BasicJsonField<Json>::members(std::size_t most) const {
  expect_object();
  if (json_->size() > most) refuse(fmt::format("must be an object of at most {}, not {}", most, json_->size()));
  std::vector<std::pair<std::string, BasicJsonField>> members;
  for (const auto& [key, value] : json_->items())
    members.emplace_back(key, BasicJsonField(value, *source_, path_ + (path_.empty() ? "" : ".") + key));
  return members;
}

template <typename Json>
std::string BasicJsonField<Json>::text(std::size_t most_bytes, bool control_characters) const {
  if (!json_->is_string()) refuse("must be a string");
  const auto& text = json_->template get_ref<const std::string&>();
  if (text.size() > most_bytes) refuse(fmt::format("must be a string of at most {} bytes", most_bytes));
  if (!control_characters && std::ranges::any_of(text, is_control)) refuse("must be a string without control characters");
  return text;
}

template <typename Json>
bool BasicJsonField<Json>::flag() const {
  if (!json_->is_boolean()) refuse("must be true or false");
  return json_->template get<bool>();
}

template <typename Json>
std::int64_t BasicJsonField<Json>::whole(std::int64_t least, std::int64_t most) const {
  // A number beyond int64 is unsigned, and would become negative when converted.
  const bool fits = json_->is_number_integer() && !(json_->is_number_unsigned() && json_->template get<std::uint64_t>() >
                                                                                       static_cast<std::uint64_t>(INT64_MAX));
  const std::int64_t value = fits ? json_->template get<std::int64_t>() : 0;
  if (!fits || value < least || value > most) {
    refuse(most == INT64_MAX ? fmt::format("must be a whole number of at least {}", least)
                             : fmt::format("must be a whole number from {} to {}", least, most));
  }
  return value;
}

template <typename Json>
std::uint64_t BasicJsonField<Json>::natural() const {
  if (!json_->is_number_unsigned()) refuse("must be a whole number of at least 0");
  return json_->template get<std::uint64_t>();
}

template <typename Json>
double BasicJsonField<Json>::number(double least, double most) const {
  const double value = json_->is_number() ? json_->template get<double>() : NAN;
  if (!std::isfinite(value) || value < least || value > most) refuse("must be " + range(least, most));
  return value;
}

template class BasicJsonField<nlohmann::json>;
template class BasicJsonField<nlohmann::ordered_json>;

}  // namespace plait
