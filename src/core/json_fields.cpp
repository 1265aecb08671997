#include "core/json_fields.h"

#include <spdlog/fmt/fmt.h>

#include <cmath>

#include "core/error.h"

namespace plait {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

JsonFields::JsonFields(const Json& json, std::string source) : JsonFields(json, std::move(source), "") {}

JsonFields::JsonFields(const Json& json, std::string source, std::string path)
    : json_(&json), source_(std::move(source)), path_(std::move(path)) {
  if (!json.is_object()) throw ConfigError(fmt::format("{}: {} must be an object", source_, path_.empty() ? "it" : path_));
}

void JsonFields::fail(const std::string& key, const std::string& rule) const {
  throw ConfigError(fmt::format("{}: '{}' must be {}", source_, path_of(key), rule));
}

const Json* JsonFields::find(const std::string& key) const {
  const auto found = json_->find(key);
  return found == json_->end() || found->is_null() ? nullptr : &*found;
}

const Json& JsonFields::get(const std::string& key, const char* rule) const {
  const Json* found = find(key);
  if (found == nullptr) fail(key, std::string(rule) + ", but is missing");
  return *found;
}

bool JsonFields::has(const std::string& key) const { return find(key) != nullptr; }

std::string JsonFields::text(const std::string& key, std::size_t most_bytes) const {
  const Json& value = get(key, "a string");
  if (!value.is_string() || value.get_ref<const std::string&>().size() > most_bytes)
    fail(key, fmt::format("a string of at most {} bytes", most_bytes));
  return value.get<std::string>();
}

std::string JsonFields::maybe_text(const std::string& key, std::size_t most_bytes) const {
  return has(key) ? text(key, most_bytes) : std::string();
}

bool JsonFields::flag(const std::string& key) const {
  const Json& value = get(key, "true or false");
  if (!value.is_boolean()) fail(key, "true or false");
  return value.get<bool>();
}

std::int64_t JsonFields::integer(const std::string& key, std::int64_t least, std::int64_t most) const {
  const Json& value = get(key, "an integer");
  // Beyond int64 the number is unsigned, and negative once converted: out of range as well, since `most` is an int64.
  const bool wraps = value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  if (!value.is_number_integer() || wraps || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most)
    fail(key, fmt::format("an integer from {} to {}", least, most));
  return value.get<std::int64_t>();
}

std::optional<std::int64_t> JsonFields::maybe_integer(const std::string& key, std::int64_t least, std::int64_t most) const {
  return has(key) ? std::optional(integer(key, least, most)) : std::nullopt;
}

double JsonFields::number(const std::string& key) const {
  const Json& value = get(key, "a number");
  if (!value.is_number() || !std::isfinite(value.get<double>())) fail(key, "a finite number");
  return value.get<double>();
}

double JsonFields::not_negative(const std::string& key) const {
  const double value = number(key);
  if (value < 0) fail(key, "at least 0");
  return value;
}

std::optional<double> JsonFields::maybe_number(const std::string& key) const {
  return has(key) ? std::optional(number(key)) : std::nullopt;
}

std::vector<double> JsonFields::numbers(const std::string& key, std::size_t most) const {
  const Json& list = get(key, "a list of numbers");
  const std::string rule = fmt::format("a list of at most {} finite numbers", most);
  if (!list.is_array() || list.size() > most) fail(key, rule);
  std::vector<double> values;
  for (const Json& value : list) {
    if (!value.is_number() || !std::isfinite(value.get<double>())) fail(key, rule);
    values.push_back(value.get<double>());
  }
  return values;
}

std::vector<std::string> JsonFields::texts(const std::string& key, std::size_t most) const {
  const Json& list = get(key, "a list of strings");
  const std::string rule = fmt::format("a list of at most {} strings", most);
  if (!list.is_array() || list.size() > most) fail(key, rule);
  std::vector<std::string> values;
  for (const Json& value : list) {
    if (!value.is_string()) fail(key, rule);
    values.push_back(value.get<std::string>());
  }
  return values;
}

JsonFields JsonFields::object(const std::string& key) const { return {get(key, "an object"), source_, path_of(key)}; }

void JsonFields::each(const std::string& key, std::size_t most, const std::function<void(const JsonFields&)>& read) const {
  const Json& list = get(key, "a list of objects");
  if (!list.is_array() || list.size() > most) fail(key, fmt::format("a list of at most {} objects", most));
  for (std::size_t n = 0; n < list.size(); ++n) read({list[n], source_, fmt::format("{}[{}]", path_of(key), n)});
}

void JsonFields::each_text(const std::string& key, std::size_t most,
                           const std::function<void(const std::string& name, const std::string& value)>& read) const {
  const Json& map = get(key, "an object of strings");
  const std::string rule = fmt::format("an object of at most {} strings", most);
  if (!map.is_object() || map.size() > most) fail(key, rule);
  for (const auto& [name, value] : map.items()) {
    if (!value.is_string()) fail(key, rule);
    read(name, value.get<std::string>());
  }
}

}  // namespace plait
