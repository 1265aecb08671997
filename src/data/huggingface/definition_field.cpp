#include "data/huggingface/definition_field.h"

#include <spdlog/fmt/fmt.h>

#include "core/error.h"
#include "core/message.h"

namespace plait::data {
namespace {

constexpr std::size_t most_shown = 60, most_path = 256;  // bytes of a value and of its place in a message

std::string shown_value(const nlohmann::json& json) {
  if (json.is_object() || json.is_array()) return json.is_object() ? "{...}" : "[...]";
  return printable(json.is_string() ? json.get<std::string>() : json.dump(), most_shown);
}

const nlohmann::json no_value;

}  // namespace

void DefinitionField::refuse(const std::string& rule) const {
  const std::string place = path_.empty() ? "it" : printable(path_, most_path);
  throw ConfigError({{fmt::format("{}: {}", file_, place), shown_value(*json_), printable(rule), "", 0}});
}

DefinitionField DefinitionField::operator[](const std::string& key) const {
  if (!json_->is_object()) refuse("must be an object");
  const auto found = json_->find(key);
  return {found == json_->end() ? no_value : *found, file_, path_.empty() ? key : path_ + "." + key};
}

std::vector<DefinitionField> DefinitionField::items() const {
  if (!json_->is_array()) refuse("must be a list");
  std::vector<DefinitionField> items;
  items.reserve(json_->size());
  for (const Json& item : *json_) items.emplace_back(item, file_, fmt::format("{}[{}]", path_, items.size()));
  return items;
}

std::vector<DefinitionField> DefinitionField::members() const {
  if (!json_->is_object()) refuse("must be an object");
  std::vector<DefinitionField> members;
  for (const auto& [key, value] : json_->items()) members.emplace_back(value, file_, path_ + "." + key);
  return members;
}

const std::string& DefinitionField::text() const {
  if (!json_->is_string()) refuse("must be a string");
  return json_->get_ref<const std::string&>();
}

bool DefinitionField::flag() const {
  if (!json_->is_boolean()) refuse("must be true or false");
  return json_->get<bool>();
}

bool DefinitionField::flag_or(bool otherwise) const { return is_null() ? otherwise : flag(); }

std::int64_t DefinitionField::whole(std::int64_t least, std::int64_t most) const {
  // Beyond int64 it is unsigned, and then out of range.
  const bool fits = json_->is_number_integer() &&
                    !(json_->is_number_unsigned() && json_->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX));
  if (!fits || json_->get<std::int64_t>() < least || json_->get<std::int64_t>() > most)
    refuse(fmt::format("must be an integer from {} to {}", least, most));
  return json_->get<std::int64_t>();
}

}  // namespace plait::data
