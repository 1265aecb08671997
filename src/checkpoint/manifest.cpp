#include "checkpoint/manifest.h"

#include <string_view>

#include "checkpoint/checksum.h"
#include "core/error.h"
#include "core/json.h"
#include "core/limits.h"
#include "core/record.h"

namespace plait::checkpoint {
namespace {

constexpr std::string_view checksum_key = "{\"xxh3\": \"";
constexpr std::size_t hash_digits = 16;
// The checksums of four tensors for each of 250,000 parameters.
constexpr std::size_t most_values = 1'000'000;
using Json = nlohmann::ordered_json;

// A checksum as hexadecimal digits.
struct HashRule {
  std::uint64_t read(const JsonField& field) const {
    const Json& value = field.json();
    if (!value.is_string() || value.get_ref<const std::string&>().size() != hash_digits ||
        value.get_ref<const std::string&>().find_first_not_of("0123456789abcdef") != std::string::npos)
      field.refuse("must be a checksum of " + std::to_string(hash_digits) + " hexadecimal digits");
    return std::stoull(value.get_ref<const std::string&>(), nullptr, 16);
  }
  Json write(std::uint64_t hash) const { return to_hex(hash); }
};

// Whatever the trainer keeps.
struct StateRule {
  Json read(const JsonField& field) const {
    field.expect_object();
    return field.json();
  }
  Json write(const Json& state) const { return state; }
};

}  // namespace

void declare(auto& field, Of<ManifestFile> auto& file) {
  field("name", file.name);
  // A plain name: a checkpoint must not be able to point outside its directory.
  field.check(file.name.find('/') == std::string::npos && file.name.ends_with(".safetensors"), "name",
              "must be a plain file name that ends in .safetensors");
  field("bytes", file.bytes);
  field("header_xxh3", file.header_xxh3, HashRule());
  field("tensors", file.tensors, record::at_most(most_values, HashRule()));
}

void declare(auto& field, Of<Manifest> auto& manifest) {
  field.constant("format", "plait-checkpoint", ": this is not the state of a plait checkpoint");
  field.constant("version", Manifest::version, ", the version that this program reads");
  field("step", manifest.step, record::whole(0, limits::steps.most));
  field("files", manifest.files, record::at_most(most_values));
  field("state", manifest.state, StateRule());
}

std::string to_text(const Manifest& manifest) {
  std::string rest;
  try {
    rest = record_json(manifest).dump(1).substr(1) + "\n";  // without the opening brace, which stands in the first line
  } catch (const Json::exception& error) {
    throw InternalError(std::string("the trainer's state cannot be written as JSON: ") + error.what());
  }
  rest.erase(0, rest.find_first_not_of("\n"));
  return std::string(checksum_key) + to_hex(xxh3(rest)) + "\",\n" + rest;
}

Manifest parse_manifest(const std::string& text, const std::filesystem::path& path) {
  const JsonSource source{.name = path.string(), .null_is_missing = false};
  const auto fail = [&](const std::string& what) { throw ConfigError(source.name + ": " + what); };
  const std::size_t newline = text.find('\n'), first_line = checksum_key.size() + hash_digits + 2;
  if (newline != first_line || !text.starts_with(checksum_key))
    fail("it does not begin with its checksum: torn, or not the state of a plait checkpoint");
  const std::string stored = manifest_digest(text), actual = to_hex(xxh3(std::string_view(text).substr(newline + 1)));
  if (stored != actual) fail("checksum " + actual + ", recorded " + stored + ": it was damaged or edited");
  std::size_t values = 0;
  const auto bounded = [&](int, Json::parse_event_t event, Json&) {
    using Event = Json::parse_event_t;
    if (event == Event::value || event == Event::object_start || event == Event::array_start) ++values;
    if (values > most_values) fail("it has more than " + std::to_string(most_values) + " values");
    return true;
  };
  const Json json = parse_json<Json>(text, fail, bounded);
  return record_from<Manifest>(JsonField(json, source));
}

std::string manifest_digest(const std::string& text) { return text.substr(checksum_key.size(), hash_digits); }

}  // namespace plait::checkpoint
