#include "checkpoint/manifest.h"

#include <string_view>

#include "checkpoint/checksum.h"
#include "core/config_limits.h"
#include "core/error.h"
#include "core/json_file.h"

namespace plait::checkpoint {
namespace {

constexpr const char* format_name = "plait-checkpoint";
constexpr std::string_view checksum_key = "{\"xxh3\": \"";
constexpr std::size_t hash_digits = 16;
// The checksums of four tensors for each of 250,000 parameters.
constexpr std::size_t most_values = 1'000'000;
constexpr std::size_t longest_quote = 80;

using Json = nlohmann::ordered_json;

class ManifestParser {
 public:
  explicit ManifestParser(const std::filesystem::path& path) : path_(path) {}

  Manifest parse(const std::string& text) const {
    check_own_hash(text);
    const Json json = parse_json(text);
    if (!json.is_object() || json.value("format", Json()) != format_name) fail("not the state of a plait checkpoint");
    const Json version = member(json, "version");
    if (version != Manifest::version) {
      fail("checkpoint format version " + quoted(version) + ", this program reads version " +
           std::to_string(Manifest::version));
    }
    Manifest manifest;
    const std::uint64_t step = number(member(json, "step"), "step");
    if (step > std::uint64_t{limits::steps.most}) fail("'step' is too large");
    manifest.step = static_cast<std::int64_t>(step);
    const Json& files = member(json, "files");
    if (!files.is_array()) fail("'files' is not a list");
    for (const Json& entry : files) manifest.files.push_back(parse_file(entry));
    manifest.state = member(json, "state");
    if (!manifest.state.is_object()) fail("'state' is not an object");
    return manifest;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw ConfigError(path_.string() + ": " + what); }

  // As a message shows it, of whatever length it is.
  static std::string quoted(const Json& value) {
    const std::string text = value.dump();
    return text.size() > longest_quote ? text.substr(0, longest_quote) + "..." : text;
  }

  void check_own_hash(const std::string& text) const {
    const std::size_t newline = text.find('\n');
    const std::size_t first_line = checksum_key.size() + hash_digits + 2;
    if (newline != first_line || !text.starts_with(checksum_key)) {
      fail("it does not begin with its checksum: torn, or not the state of a plait checkpoint");
    }
    const std::string stored = text.substr(checksum_key.size(), hash_digits);
    const std::string actual = to_hex(xxh3(std::string_view(text).substr(newline + 1)));
    if (stored != actual) fail("checksum " + actual + ", recorded " + stored + ": it was damaged or edited");
  }

  Json parse_json(const std::string& text) const {
    std::size_t values = 0;
    const auto bounded = [&](int, Json::parse_event_t event, Json&) {
      using Event = Json::parse_event_t;
      if (event == Event::value || event == Event::object_start || event == Event::array_start) ++values;
      if (values > most_values) fail("it has more than " + std::to_string(most_values) + " values");
      return true;
    };
    return plait::parse_json<Json>(text, [this](const std::string& problem) { fail(problem); }, bounded);
  }

  const Json& member(const Json& object, const char* key) const {
    const auto found = object.is_object() ? object.find(key) : object.end();
    if (found == object.end()) fail(std::string("'") + key + "' is missing");
    return *found;
  }

  std::uint64_t number(const Json& value, const char* key) const {
    if (!value.is_number_unsigned()) fail(std::string("'") + key + "' is not a non-negative integer");
    return value.get<std::uint64_t>();
  }

  std::uint64_t hash(const Json& value, const std::string& of) const {
    if (value.is_string()) {
      const auto& text = value.get_ref<const std::string&>();
      if (text.size() == hash_digits && text.find_first_not_of("0123456789abcdef") == std::string::npos) {
        return std::stoull(text, nullptr, 16);
      }
    }
    fail("the checksum of " + of + " is not " + std::to_string(hash_digits) + " hexadecimal digits");
  }

  ManifestFile parse_file(const Json& entry) const {
    ManifestFile file;
    const Json& name = member(entry, "name");
    if (name.is_string()) file.name = name.get<std::string>();
    // A plain name: a checkpoint must not be able to point outside its directory.
    if (file.name.empty() || file.name.find('/') != std::string::npos || !file.name.ends_with(".safetensors")) {
      fail("impossible file name " + quoted(name));
    }
    file.bytes = number(member(entry, "bytes"), "bytes");
    file.header_xxh3 = hash(member(entry, "header_xxh3"), "the header of " + file.name);
    const Json& tensors = member(entry, "tensors");
    if (!tensors.is_object()) fail("'tensors' of " + file.name + " is not an object");
    for (const auto& [tensor, value] : tensors.items()) file.tensors.emplace(tensor, hash(value, tensor));
    return file;
  }

  const std::filesystem::path& path_;
};

}  // namespace

std::string to_text(const Manifest& manifest) {
  Json files = Json::array();
  for (const ManifestFile& file : manifest.files) {
    Json tensors = Json::object();
    for (const auto& [name, hash] : file.tensors) tensors[name] = to_hex(hash);
    files.push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"header_xxh3", to_hex(file.header_xxh3)}, {"tensors", tensors}});
  }
  const Json json = {{"format", format_name},
                     {"version", Manifest::version},
                     {"step", manifest.step},
                     {"files", files},
                     {"state", manifest.state}};
  std::string rest;
  try {
    rest = json.dump(1).substr(1) + "\n";  // without the opening brace, which stands in the first line
  } catch (const Json::exception& error) {
    throw InternalError(std::string("the trainer's state cannot be written as JSON: ") + error.what());
  }
  rest.erase(0, rest.find_first_not_of("\n"));
  return std::string(checksum_key) + to_hex(xxh3(rest)) + "\",\n" + rest;
}

Manifest parse_manifest(const std::string& text, const std::filesystem::path& path) { return ManifestParser(path).parse(text); }

std::string manifest_digest(const std::string& text) { return text.substr(checksum_key.size(), hash_digits); }

}  // namespace plait::checkpoint
