// Records as JSON: each is declared once, and the declaration reads and writes it.
//
//   void declare(auto& field, Of<RankMemory> auto& memory) {
//     field("planned_bytes", memory.planned_bytes, record::at_least(0));
//     field("name", memory.name, record::text(64));
//   }
//
// stands beside the record, in its namespace: name, member, rule. The members are written in this order. Members are numbers,
// texts, bool, enumerations with names (core/names.h), records, std::optional of these (left out if empty), lists and maps of
// these; or any other type whose rule has read(field) and write(value). Enumerations without names are numbers, whose rule is a
// whole(). A rule for a record is passed to its declare() as third argument. Besides field():
//
//
//   field.required(name, optional, rule)           must be present when read
//   field.or_null(name, optional, rule)            null if empty
//   field.unless(otherwise, name, member, rule)    left out if equal to `otherwise`
//   field.with_default(otherwise, name, member, rule)  may be missing when read
//   field.constant(name, value, why)               only this value is read, for formats and versions; `why` may be ""
//   field.derived(name, value)                     written for readers of the JSON; follows from the members, and is not read
//   field.renamed(before, name, member, rule)      also read by its former name
//   field.object(name, declare_members)            an object of some members: declare_members(its field)
//   field.check(holds, name, rule)                 a rule on the members read so far
//   field.has(name)                                true if it is written, or present when read
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/json.h"

namespace plait {

template <typename Self, typename Record>
concept Of = std::is_same_v<std::remove_const_t<Self>, Record>;

namespace record {

struct AnyValue {};

struct Whole {
  std::int64_t least, most;
  std::int64_t read(const auto& field) const { return field.whole(least, most); }
};

struct Number {
  double least, most;
  double read(const auto& field) const { return field.number(least, most); }
};

struct Text {
  std::size_t most_bytes;
  bool control_characters;
  std::string read(const auto& field) const {
    return field.text(most_bytes, control_characters || field.source().control_characters);
  }
};

// The rule of a list or map.
template <typename Rule>
struct Many {
  std::size_t most;
  Rule each;
};

template <typename T>
inline constexpr bool is_optional = false;
template <typename T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <typename T>
inline constexpr bool is_list = false;
template <typename T>
inline constexpr bool is_list<std::vector<T>> = true;
template <typename T>
inline constexpr bool is_map = false;
template <typename T, typename Compare>
inline constexpr bool is_map<std::map<std::string, T, Compare>> = true;
template <typename T>
inline constexpr bool is_map<std::vector<std::pair<std::string, T>>> = true;  // in that order

constexpr Whole whole(std::int64_t least, std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  return {least, most};
}
constexpr Number number(double least, double most) { return {least, most}; }
constexpr Number at_least(double least) { return {least, std::numeric_limits<double>::max()}; }
constexpr Text text(std::size_t most_bytes) { return {most_bytes, false}; }
constexpr Text lines(std::size_t most_bytes) { return {most_bytes, true}; }  // control characters are allowed
template <typename Rule = AnyValue>
constexpr Many<Rule> at_most(std::size_t most, const Rule& each = {}) {
  return {most, each};
}

}  // namespace record

template <typename Field, typename T, typename Rule>
void read_value(const Field& field, T& value, const Rule& rule);
template <typename T, typename Rule>
nlohmann::ordered_json value_json(const T& value, const Rule& rule);

template <typename Field>
class RecordReader {
 public:
  explicit RecordReader(const Field& record) : record_(record) { record.expect_object(); }

  template <typename T, typename Rule = record::AnyValue>
  void operator()(std::string_view name, T& value, const Rule& rule = {}) {
    read_value(at(name), value, rule);
  }
  template <typename T, typename Rule = record::AnyValue>
  void required(std::string_view name, std::optional<T>& value, const Rule& rule = {}) {
    read_value(at(name), value.emplace(), rule);
  }
  template <typename T, typename Rule = record::AnyValue>
  void or_null(std::string_view name, std::optional<T>& value, const Rule& rule = {}) {
    read_value(at(name), value, rule);
  }
  template <typename T, typename Rule = record::AnyValue>
  void with_default(const std::type_identity_t<T>& otherwise, std::string_view name, T& value, const Rule& rule = {}) {
    const Field field = at(name);
    if (!field.is_there()) {
      value = otherwise;
    } else {
      read_value(field, value, rule);
    }
  }
  template <typename T, typename Rule = record::AnyValue>
  void unless(const std::type_identity_t<T>& otherwise, std::string_view name, T& value, const Rule& rule = {}) {
    with_default(otherwise, name, value, rule);
  }
  template <typename T>
  void constant(std::string_view name, const T& value, const std::string& why) {
    const Field field = at(name);
    if (field.json() != value) field.refuse("must be " + nlohmann::ordered_json(value).dump() + why);
  }
  template <typename T>
  void derived(std::string_view name, const T&) {
    asked_.emplace_back(name);
  }
  template <typename T, typename Rule = record::AnyValue>
  void renamed(std::string_view before, std::string_view name, T& value, const Rule& rule = {}) {
    const Field old = at(before), now = at(name);
    read_value(old.is_there() ? old : now, value, rule);
  }
  template <typename Declare>
  void object(std::string_view name, const Declare& declare_members) {
    const Field field = at(name);
    RecordReader members(field);
    declare_members(members);
    members.end();
  }
  void check(bool holds, std::string_view name, const std::string& rule) const {
    if (!holds) record_.refuse(name, rule);
  }
  bool has(std::string_view name) const { return record_.has(name); }
  // Call last: refuses keys that were not asked for, if the record's source does.
  void end() const {
    if (record_.source().known_keys_only) record_.expect_only(asked_);
  }

 private:
  Field at(std::string_view name) {
    asked_.emplace_back(name);
    return record_[name];
  }

  const Field& record_;
  std::vector<std::string> asked_;
};

class RecordWriter {
 public:
  template <typename T, typename Rule = record::AnyValue>
  void operator()(std::string_view name, const T& value, const Rule& rule = {}) {
    json_[std::string(name)] = value_json(value, rule);
  }
  template <typename T, typename Rule = record::AnyValue>
  void operator()(std::string_view name, const std::optional<T>& value, const Rule& rule = {}) {
    if (value) (*this)(name, *value, rule);
  }
  template <typename T, typename Rule = record::AnyValue>
  void required(std::string_view name, const std::optional<T>& value, const Rule& rule = {}) {
    (*this)(name, value, rule);
  }
  template <typename T, typename Rule = record::AnyValue>
  void or_null(std::string_view name, const std::optional<T>& value, const Rule& rule = {}) {
    json_[std::string(name)] = nullptr;
    (*this)(name, value, rule);
  }
  template <typename T, typename Rule = record::AnyValue>
  void with_default(const std::type_identity_t<T>&, std::string_view name, const T& value, const Rule& rule = {}) {
    (*this)(name, value, rule);
  }
  template <typename T, typename Rule = record::AnyValue>
  void unless(const std::type_identity_t<T>& otherwise, std::string_view name, const T& value, const Rule& rule = {}) {
    if (value != otherwise) (*this)(name, value, rule);
  }
  template <typename T>
  void constant(std::string_view name, const T& value, const std::string&) {
    json_[std::string(name)] = value;
  }
  template <typename T>
  void derived(std::string_view name, const T& value) {
    json_[std::string(name)] = value;
  }
  template <typename T, typename Rule = record::AnyValue>
  void renamed(std::string_view, std::string_view name, const T& value, const Rule& rule = {}) {
    (*this)(name, value, rule);
  }
  template <typename Declare>
  void object(std::string_view name, const Declare& declare_members) {
    RecordWriter members;
    declare_members(members);
    json_[std::string(name)] = members.take();
  }
  void check(bool, std::string_view, const std::string&) const {}
  bool has(std::string_view) const { return true; }

  nlohmann::ordered_json take() { return std::move(json_); }

 private:
  nlohmann::ordered_json json_ = nlohmann::ordered_json::object();
};

template <typename T>
concept Declared = requires(RecordWriter& writer, const T& value) { declare(writer, value); };

template <typename Field, typename T, typename Rule>
void read_value(const Field& field, T& value, const Rule& rule) {
  if constexpr (record::is_optional<T>) {
    value.reset();
    if (field.is_there()) read_value(field, value.emplace(), rule);
  } else if constexpr (requires { static_cast<T>(rule.read(field)); }) {
    value = static_cast<T>(rule.read(field));
  } else if constexpr (record::is_map<T>) {
    value.clear();
    for (const auto& [name, member] : field.members(rule.most)) {
      typename T::value_type entry{name, {}};
      read_value(member, entry.second, rule.each);
      value.insert(value.end(), std::move(entry));
    }
  } else if constexpr (record::is_list<T>) {
    value.clear();
    for (const Field& item : field.items(rule.most)) read_value(item, value.emplace_back(), rule.each);
  } else if constexpr (std::is_same_v<T, bool>) {
    value = field.flag();
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    value = field.natural();
  } else if constexpr (std::is_integral_v<T>) {
    value = static_cast<T>(field.whole(std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  } else if constexpr (std::is_floating_point_v<T>) {
    value = field.number();
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = field.text();
  } else if constexpr (Named<T>) {
    value = field.template choice<T>();
  } else {
    RecordReader<Field> reader(field);
    if constexpr (requires { declare(reader, value, rule); }) {
      declare(reader, value, rule);
    } else {
      declare(reader, value);
    }
    reader.end();
  }
}

template <typename T, typename Rule>
nlohmann::ordered_json value_json(const T& value, const Rule& rule) {
  using Json = nlohmann::ordered_json;
  if constexpr (requires { rule.write(value); }) {
    return rule.write(value);
  } else if constexpr (record::is_map<T>) {
    Json json = Json::object();
    for (const auto& [name, member] : value) json[name] = value_json(member, rule.each);
    return json;
  } else if constexpr (record::is_list<T>) {
    Json json = Json::array();
    for (const auto& item : value) json.push_back(value_json(item, rule.each));
    return json;
  } else if constexpr (Named<T>) {
    return to_string(value);
  } else if constexpr (std::is_enum_v<T>) {
    return static_cast<std::int64_t>(value);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    return value;
  } else {
    RecordWriter writer;
    if constexpr (requires { declare(writer, value, rule); }) {
      declare(writer, value, rule);
    } else {
      declare(writer, value);
    }
    return writer.take();
  }
}

// `rule`: as in a member's declaration.
template <typename T, typename Json, typename Rule = record::AnyValue>
T record_from(const BasicJsonField<Json>& field, const Rule& rule = {}) {
  T value{};
  read_value(field, value, rule);
  return value;
}

template <typename T, typename Rule = record::AnyValue>
nlohmann::ordered_json record_json(const T& value, const Rule& rule = {}) {
  return value_json(value, rule);
}

}  // namespace plait
