// Reads the fields of an untrusted JSON object: each is asked for by name, type and range.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace plait {

// Every failure is a ConfigError that names the source, the path of the field and the expected value. Keeps a reference to the
// document.
class JsonFields {
 public:
  // `source`: "points.jsonl:3". ConfigError unless `json` is an object.
  JsonFields(const nlohmann::ordered_json& json, std::string source);

  bool has(const std::string& key) const;  // and it is not null
  std::string text(const std::string& key, std::size_t most_bytes = 1 << 16) const;
  bool flag(const std::string& key) const;
  std::int64_t integer(const std::string& key, std::int64_t least, std::int64_t most) const;
  double number(const std::string& key) const;                       // finite
  double not_negative(const std::string& key) const;                 // finite, at least 0
  std::optional<double> maybe_number(const std::string& key) const;  // nullopt if missing or null
  std::optional<std::int64_t> maybe_integer(const std::string& key, std::int64_t least, std::int64_t most) const;
  std::string maybe_text(const std::string& key, std::size_t most_bytes = 1 << 16) const;  // "" if missing or null
  std::vector<double> numbers(const std::string& key, std::size_t most) const;             // finite
  std::vector<std::string> texts(const std::string& key, std::size_t most) const;

  JsonFields object(const std::string& key) const;
  // Calls `read` for each element in turn; at most `most` of them, each an object.
  void each(const std::string& key, std::size_t most, const std::function<void(const JsonFields&)>& read) const;
  // The members of an object, in order, whose values are strings.
  void each_text(const std::string& key, std::size_t most,
                 const std::function<void(const std::string& name, const std::string& value)>& read) const;

  const nlohmann::ordered_json& json() const { return *json_; }
  [[noreturn]] void fail(const std::string& key, const std::string& rule) const;  // "": of the object itself

 private:
  JsonFields(const nlohmann::ordered_json& json, std::string source, std::string path);
  const nlohmann::ordered_json* find(const std::string& key) const;  // null: missing, or null itself
  const nlohmann::ordered_json& get(const std::string& key, const char* rule) const;
  std::string path_of(const std::string& key) const { return path_ + (path_.empty() || key.empty() ? "" : ".") + key; }

  const nlohmann::ordered_json* json_;
  std::string source_, path_;
};

}  // namespace plait
