// A field of tokenizer.json with its place, for messages.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace plait::data {

// Refers to the document. Every failure is a ConfigError that names file, field and value.
class DefinitionField {
 public:
  using Json = nlohmann::json;
  DefinitionField(const Json& json, std::string file, std::string path = "")
      : json_(&json), file_(std::move(file)), path_(std::move(path)) {}

  [[noreturn]] void refuse(const std::string& rule) const;
  const Json& json() const { return *json_; }
  bool is_null() const { return json_->is_null(); }

  DefinitionField operator[](const std::string& key) const;  // null where it is missing; refuses what is no object
  std::vector<DefinitionField> items() const;                // of a list
  std::vector<DefinitionField> members() const;              // of an object
  const std::string& text() const;
  bool flag() const;
  bool flag_or(bool otherwise) const;  // where it is missing
  std::int64_t whole(std::int64_t least, std::int64_t most) const;

 private:
  const Json* json_;
  std::string file_, path_;
};

}  // namespace plait::data
