// Reads a configuration: YAML text and overrides become values by path, the schema turns those into structs.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include <spdlog/fmt/fmt.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "config/schema.h"
#include "config/suggestion.h"
#include "core/error.h"
#include "core/file.h"
#include "core/utf8.h"

namespace plait {
namespace config {
namespace {

// Of one file; the rest is counted.
constexpr std::size_t most_problems = 100;

// PATH of {file: PATH}.
std::optional<std::string> file_path(const YAML::Node& node) {
  if (!node.IsMap() || node.size() != 1) return std::nullopt;
  const YAML::Node path = node["file"];
  return path.IsDefined() && path.IsScalar() && !path.Scalar().empty() ? std::optional(path.Scalar()) : std::nullopt;
}

// What a user wrote as a message shows it: in one line of bounded length.
std::string shown(std::string text) {
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  std::ranges::replace_if(text, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return text;
}

// Never descends, as an anchor may contain itself.
std::string shown(const YAML::Node& node) {
  if (node.IsNull()) return "";
  if (const auto path = file_path(node)) return shown("{file: " + *path + "}");
  if (node.IsScalar()) return shown(node.Scalar());
  const std::string inside = node.size() == 0 ? "" : "...";
  return node.IsSequence() ? "[" + inside + "]" : "{" + inside + "}";
}

bool is_quoted(const YAML::Node& node) { return node.Tag() == "!" || node.Tag() == "tag:yaml.org,2002:str"; }

template <typename T>
std::optional<T> number_from(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return std::nullopt;
  }
  return value;
}

// Overloads by type of key; nullopt: `node` is not of that type.
std::optional<std::string> read(const YAML::Node& node, const std::string&) {
  if (!node.IsScalar()) return std::nullopt;
  return node.Scalar();
}

std::optional<bool> read(const YAML::Node& node, bool) {
  bool value = false;
  if (!node.IsScalar() || is_quoted(node) || !YAML::convert<bool>::decode(node, value)) return std::nullopt;
  return value;
}

template <typename T>
  requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
std::optional<T> read(const YAML::Node& node, T) {
  if (!node.IsScalar() || is_quoted(node)) return std::nullopt;
  return number_from<T>(node.Scalar());
}

template <typename T>
std::optional<std::vector<T>> read(const YAML::Node& node, const std::vector<T>&) {
  std::vector<T> list;
  if (node.IsScalar()) {
    const auto single = read(node, T{});
    if (!single) return std::nullopt;
    list.push_back(*single);
    return list;
  }
  if (!node.IsSequence()) return std::nullopt;
  for (const YAML::Node& element : node) {
    const auto value = read(element, T{});
    if (!value) return std::nullopt;
    list.push_back(*value);
  }
  return list;
}

std::optional<DataSourceConfig> read(const YAML::Node& node, const DataSourceConfig& like) {
  if (!node.IsMap()) return std::nullopt;
  DataSourceConfig source;
  std::set<std::string> seen;
  for (const auto& entry : node) {
    if (!entry.first.IsScalar() || !seen.insert(entry.first.Scalar()).second) return std::nullopt;
    if (entry.first.Scalar() == "files") {
      const auto files = read(entry.second, like.files);
      if (!files) return std::nullopt;
      source.files = *files;
    } else if (entry.first.Scalar() == "weight") {
      const auto weight = read(entry.second, like.weight);
      if (!weight) return std::nullopt;
      source.weight = *weight;
    } else {
      return std::nullopt;
    }
  }
  return source;
}

std::optional<std::vector<DataSourceConfig>> read(const YAML::Node& node, const std::vector<DataSourceConfig>&) {
  if (!node.IsSequence()) return std::nullopt;
  std::vector<DataSourceConfig> sources;
  for (const YAML::Node& element : node) {
    const auto source = read(element, DataSourceConfig{});
    if (!source) return std::nullopt;
    sources.push_back(*source);
  }
  return sources;
}

std::optional<FileValue> read(const YAML::Node&, const FileValue&) { return std::nullopt; }
std::optional<Automatic> read(const YAML::Node&, Automatic) { return std::nullopt; }

// A value of an axis; lists are values too (`parallel.stages`), and so is {file: PATH}. Deeper ones no axis takes.
std::optional<AxisValue> read_axis_value(const YAML::Node& node) {
  if (node.IsScalar()) return axis_value(node.Scalar(), is_quoted(node));
  if (const auto path = file_path(node)) {
    const std::string text = "{file: " + axis_value(*path, true).yaml + "}";
    return AxisValue{text, *path};
  }
  if (!node.IsSequence()) return std::nullopt;
  std::string list;
  for (const YAML::Node& element : node) {
    if (!element.IsScalar()) return std::nullopt;
    list += (list.empty() ? "" : ", ") + axis_value(element.Scalar(), is_quoted(element)).yaml;
  }
  return AxisValue{"[" + list + "]", "[" + list + "]"};
}

std::optional<std::vector<AxisConfig>> read(const YAML::Node& node, const std::vector<AxisConfig>&) {
  if (!node.IsMap()) return std::nullopt;
  std::vector<AxisConfig> axes;
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) return std::nullopt;
    AxisConfig& axis = axes.emplace_back(AxisConfig{entry.first.Scalar(), {}});
    if (entry.second.IsScalar()) {  // a list of one may be written as its element
      axis.values.push_back(*read_axis_value(entry.second));
      continue;
    }
    if (!entry.second.IsSequence()) return std::nullopt;
    for (const YAML::Node& element : entry.second) {
      const auto value = read_axis_value(element);
      if (!value) return std::nullopt;
      axis.values.push_back(*value);
    }
  }
  return axes;
}

std::optional<Value> read_value(const YAML::Node& node, const Field& field) {
  if (field.open && node.IsMap()) {
    const auto path = file_path(node);
    return path ? std::optional<Value>(field.open(*path)) : std::nullopt;
  }
  if (field.takes_auto && node.IsScalar() && node.Scalar() == "auto") return automatic;
  return std::visit(
      [&](const auto& like) -> std::optional<Value> {
        auto typed = read(node, like);
        return typed ? std::optional<Value>(std::move(*typed)) : std::nullopt;
      },
      field.type);
}

class Reader {
 public:
  Reader(std::string origin, const ModelDirectoryReader& read_directory)
      : origin_(std::move(origin)), read_directory_(read_directory) {}

  void add_document(const std::string& text);
  void add_override(const std::string& text);
  Config finish();

 private:
  struct Given {
    YAML::Node node;
    int line = 0;
    bool is_override = false;
  };

  void add(const YAML::Node& node, const std::string& path, int line);
  void add_keys(const YAML::Node& node, const std::string& path, int line);
  void add_value(const YAML::Node& node, const Field& field, const std::string& path, int line);
  void assign_given();
  void fill_preset();
  void fill_from_directory();
  void take_model(const ModelDirectory& found);
  void check_required();
  void check_all();
  // The message proposes which of `candidates` may have been meant by `misspelt`.
  void report(const std::string& path, std::string value, std::string rule, int line, const std::string& misspelt = "",
              const std::vector<std::string>& candidates = {}) {
    if (++found_ > most_problems) return;
    problems_.push_back({shown(path), shown(std::move(value)), std::move(rule), nearest_of(misspelt, candidates), line});
  }

  std::string origin_;
  const ModelDirectoryReader& read_directory_;
  bool is_readable_ = false;  // the document is a map
  bool in_override_ = false;
  Config config_;
  std::map<std::string, Given> given_;   // by the schema's path
  std::set<std::string> bad_;            // keys with a problem of their own
  std::vector<ConfigProblem> problems_;  // the first of those found
  std::size_t found_ = 0;
};

// A file of these sizes is read in a tenth of a second and 100 MB; most of the memory is yaml-cpp's nodes.
class TooManyValues : public YAML::ParserException {
 public:
  explicit TooManyValues(const YAML::Mark& mark)
      : YAML::ParserException(mark, fmt::format("has more than {} values", limits::config_values)) {}
};

// Looks a text over before nodes are made of it. yaml-cpp (0.7, 0.8) takes a ',', ']' or '}' that nothing has opened for an
// empty document and does not pass it, so that LoadAll would make such documents until memory is full.
class LookOver : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (last_ && last_->pos == mark.pos) throw YAML::ParserException(mark, "a ',', ']' or '}' that nothing has opened");
    last_ = mark;
    count(mark);
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { count(mark); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { count(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t, const std::string&) override { count(mark); }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    count(mark);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    count(mark);
  }
  void OnMapEnd() override {}

 private:
  void count(const YAML::Mark& mark) {
    if (++values_ > limits::config_values) throw TooManyValues(mark);
  }

  std::optional<YAML::Mark> last_;  // where the last document began
  std::size_t values_ = 0;
};

void look_over(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  LookOver handler;
  while (parser.HandleNextDocument(handler)) {
  }
}

// Reports and returns nothing when `text` is not YAML, or too much of it.
std::optional<std::vector<YAML::Node>> parse(const std::string& text, std::string& why, int& line) {
  if (text.size() > limits::config_bytes) {
    why = fmt::format("has {} bytes, must be at most {}", text.size(), limits::config_bytes);
    return std::nullopt;
  }
  const std::size_t offset = std::min(first_invalid_utf8(text).value_or(text.size()), text.find('\0'));
  if (offset < text.size()) {
    line = 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(offset), '\n'));
    why = fmt::format("is not UTF-8 text: byte 0x{:02x} at offset {}", static_cast<unsigned char>(text[offset]), offset);
    return std::nullopt;
  }
  try {
    look_over(text);
    return YAML::LoadAll(text);
  } catch (const TooManyValues& error) {
    line = error.mark.line + 1;
    why = error.msg;
    return std::nullopt;
  } catch (const YAML::Exception& error) {
    line = error.mark.is_null() ? 0 : error.mark.line + 1;
    why = "is not valid YAML: " + error.msg;
    const bool alias = error.msg.find("anchor") != std::string::npos || error.msg.find("alias") != std::string::npos;
    if (alias) why += " (quote a value that begins with * or &)";
    return std::nullopt;
  }
}

void Reader::add_document(const std::string& text) {
  std::string why;
  int line = 0;
  const auto documents = parse(text, why, line);
  if (!documents) return report(origin_, "", why, line);
  if (documents->empty() || documents->front().IsNull()) return report(origin_, "", "is empty", 0);
  if (documents->size() > 1) return report(origin_, "", "must be a single YAML document", (*documents)[1].Mark().line + 1);
  if (!documents->front().IsMap())
    return report(origin_, shown(documents->front()), "must be a map of sections (run, model, data, ...)", 1);
  is_readable_ = true;
  add_keys(documents->front(), "", 1);
}

void Reader::add_override(const std::string& text) {
  const auto equals = text.find('=');
  const std::string path = text.substr(0, equals);
  if (equals == std::string::npos || path.empty()) return report("--set", text, "must be path=value, like train.steps=10", 0);
  std::string why;
  int line = 0;
  const auto documents = parse(text.substr(equals + 1), why, line);
  if (!documents) return report(path, text.substr(equals + 1), why, 0);
  if (documents->size() > 1) return report(path, text.substr(equals + 1), "must be a single YAML value", 0);
  in_override_ = true;
  add(documents->empty() ? YAML::Node() : documents->front(), path, 0);
  in_override_ = false;
}

void Reader::add(const YAML::Node& node, const std::string& path, int line) {
  // The short ways to write data.tokenizer with what it needs.
  static const std::string tokenizer = "data.tokenizer", sentencepiece = "sentencepiece", huggingface = "huggingface";
  if (path == tokenizer && node.IsMap()) return add_keys(node, path, line);
  if (path == tokenizer + ".file") return add(node, tokenizer + "." + huggingface + ".file", line);
  for (const std::string& kind : {sentencepiece, huggingface}) {
    const std::string map = tokenizer + "." + kind;
    if (path != map && !path.starts_with(map + ".")) continue;
    add_value(YAML::Node(kind), *find_field(tokenizer), "", line);
    return add(node, "data." + kind + path.substr(map.size()), line);
  }
  if (const Field* field = find_field(path)) return add_value(node, *field, path, line);
  static const std::string file_key = ".file";  // of a key that may be {file: PATH}
  const Field* holder = path.ends_with(file_key) ? find_field(path.substr(0, path.size() - file_key.size())) : nullptr;
  if (holder != nullptr && holder->open) {
    YAML::Node map;
    map["file"] = node;
    return add_value(map, *holder, path, line);
  }
  if (is_section(path)) return add_keys(node, path, line);

  static const std::vector<std::string> known = [] {
    std::vector<std::string> paths;
    for (const Field& field : fields()) paths.push_back(field.path);
    for (const Section& section : sections()) paths.push_back(section.path);
    return paths;
  }();
  const ForeignName* foreign = foreign_name(path);
  const std::string note = foreign != nullptr && !foreign->note.empty() ? ": " + std::string(foreign->note) : "";
  report(path, node.IsScalar() ? shown(node) : "", "unknown key" + note, line, path, known);
}

void Reader::add_keys(const YAML::Node& node, const std::string& path, int line) {
  if (node.IsNull()) return;  // a section whose keys are all commented out
  if (!node.IsMap()) return report(path, shown(node), "must be a map of keys", line);
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const int at = in_override_ ? 0 : entry.first.Mark().line + 1;
    if (!entry.first.IsScalar()) {
      report(path.empty() ? origin_ : path, shown(entry.first), "a key must be a name", at);
      continue;
    }
    const std::string name = entry.first.Scalar();
    const std::string child = path.empty() ? name : path + "." + name;
    if (name.find('.') != std::string::npos) {
      report(child, shown(entry.second), "unknown key: write it nested, 'a: {b: value}' instead of 'a.b: value'", at);
    } else if (!seen.insert(name).second) {
      report(child, shown(entry.second), "duplicate key", at);
    } else {
      add(entry.second, child, at);
    }
  }
}

// `path` is as the user wrote it; empty: the value follows from another key.
void Reader::add_value(const YAML::Node& node, const Field& field, const std::string& path, int line) {
  const auto found = given_.find(field.path);
  if (found != given_.end() && !in_override_ && !path.empty()) {
    bad_.insert(field.path);
    return report(path, shown(node), fmt::format("duplicate key: line {} gives {} too", found->second.line, field.path), line);
  }
  given_[field.path] = {node, line, in_override_};
  // Replacing the file's tokenizer replaces what came with it.
  if (!in_override_ || field.path != "data.tokenizer") return;
  const std::string kind = node.IsScalar() ? node.Scalar() : "";
  std::erase_if(given_, [&](const auto& entry) {
    const bool of_other = (kind != "sentencepiece" && entry.first.starts_with("data.sentencepiece.")) ||
                          (kind != "huggingface" && entry.first.starts_with("data.huggingface."));
    return of_other && !entry.second.is_override;
  });
}

void Reader::assign_given() {
  for (const Field& field : fields()) {
    const auto found = given_.find(field.path);
    if (found == given_.end()) continue;
    const Given& given = found->second;
    const auto value = given.node.IsNull() ? std::nullopt : read_value(given.node, field);
    if (!value) {
      bad_.insert(field.path);
      report(field.path, shown(given.node),
             given.node.IsNull() ? fmt::format("has no value: must be {}", field.rule.words)
                                 : fmt::format("wrong type: must be {} ({})", type_name(field), field.rule.words),
             given.line);
      continue;
    }
    if (const std::string why = field.rule.broken(*value); !why.empty()) {
      bad_.insert(field.path);
      const auto* name = std::get_if<std::string>(&*value);
      report(field.path, shown(given.node), why, given.line, name != nullptr ? *name : "", field.rule.names);
    }
    // Also where the rule is broken, so that rules over several keys judge what the user wrote.
    field.set(config_, *value);
  }
}

void Reader::fill_preset() {
  const auto preset = std::ranges::find(presets(), config_.model.preset, &Preset::name);
  if (preset == presets().end()) return;
  Config shape;
  shape.model = preset->model;
  for (const Field& field : fields()) {
    if (field.path.starts_with("model.") && field.path != "model.preset" && !given_.contains(field.path)) {
      field.set(config_, field.get(shape));
    }
  }
}

// What the directory says that model.from names.
void Reader::fill_from_directory() {
  static const std::string key = "model.from";
  const std::string directory = std::exchange(config_.model.from, {});
  if (directory.empty()) return;
  const int line = given_.at(key).line;
  // Several problems of one directory are told as they are, and not that the shape is missing.
  const auto refuse = [&](std::vector<ConfigProblem> problems) {
    bad_.insert(key);
    found_ += problems.size();
    problems_.insert(problems_.end(), std::make_move_iterator(problems.begin()), std::make_move_iterator(problems.end()));
  };
  if (!config_.model.preset.empty())
    return refuse({{"model.preset", config_.model.preset, "must be left out with model.from, which gives the shape", "", 0}});
  if (!read_directory_) {
    return refuse(
        {{key, shown(directory),
          "is for configurations of users: here the model is that of a run, with every key; leave it out", "", line}});
  }
  try {
    const ModelDirectory found = read_directory_(directory);
    take_model(found);
    const bool has_tokenizer = std::ranges::any_of(given_, [](const auto& entry) {
      return entry.first == "data.tokenizer" || entry.first.starts_with("data.sentencepiece.") ||
             entry.first.starts_with("data.huggingface.");
    });
    if (!has_tokenizer) {
      config_.data.tokenizer = found.tokenizer;
      config_.data.sentencepiece = found.sentencepiece;
      config_.data.huggingface = found.huggingface;
      config_.data.no_tokenizer = found.no_tokenizer;
    }
    if (!given_.contains("train.init_from.path")) config_.train.init_from.path = directory;
  } catch (const ConfigError& error) {
    refuse(error.problems().empty() ? std::vector<ConfigProblem>{{key, shown(directory), error.what(), "", line}}
                                    : error.problems());
  }
}

// Its shape, in place of keys that are not given or `auto`. Others must say the same.
void Reader::take_model(const ModelDirectory& found) {
  Config theirs;
  theirs.model = found.model;
  for (const Field& field : fields()) {
    if (!field.path.starts_with("model.") || field.path == "model.preset" || field.shorthand || bad_.contains(field.path))
      continue;
    const auto given = given_.find(field.path);
    const Value wanted = field.get(theirs);
    if (given == given_.end() || is_automatic(field.get(config_))) {
      field.set(config_, wanted);
    } else if (const std::string text = yaml_text(wanted); text != yaml_text(field.get(config_))) {
      bad_.insert(field.path);
      report(field.path, shown(given->second.node),
             fmt::format("must be {}, as of {}, which model.from names: leave it out", text, found.file), given->second.line);
    }
  }
}

void Reader::check_required() {
  for (const Field& field : fields()) {
    const Value value = field.get(config_);
    const bool is_known = given_.contains(field.path) || (field.rule.broken(value).empty() && !is_automatic(value));
    if (field.presence != Presence::required || is_known) continue;
    const bool is_model = field.path.starts_with("model.");
    // What is wrong with these is already reported.
    const bool named_model = is_model && (bad_.contains("model.preset") || bad_.contains("model.from"));
    bad_.insert(field.path);
    if (!named_model) {
      report(field.path, "",
             fmt::format("is required{}: {}", is_model ? " without model.preset or model.from" : "", field.rule.words), 0);
    }
  }
}

void Reader::check_all() {
  check(config_, bad_, [&](const Field& field, const std::string& why) {
    const auto found = given_.find(field.path);
    const bool given = found != given_.end();
    const std::string value = given ? shown(found->second.node) : yaml_text(field.get(config_));
    report(field.path, value, why, given ? found->second.line : 0);
  });
}

Config Reader::finish() {
  // Of a file that could not be read at all, "is required" for every key would only bury the reason.
  if (is_readable_) {
    assign_given();
    fill_preset();
    fill_from_directory();
    check_required();
    check_all();
  }
  if (found_ > most_problems)
    problems_.push_back({origin_, "", fmt::format("and {} more problems", found_ - most_problems), "", 0});
  if (!problems_.empty()) throw ConfigError(problems_);
  // A run keeps its configuration with every key, and has to be resumed from that.
  if (const std::size_t bytes = to_yaml(config_).size(); bytes > limits::config_bytes) {
    throw ConfigError({{origin_, "",
                        fmt::format("{} bytes with every key written out, more than the {} that the configuration of a run can "
                                    "have; a pattern (text/**) says more files in less",
                                    bytes, limits::config_bytes),
                        "", 0}});
  }
  return config_;
}

}  // namespace
}  // namespace config

Config parse_config(const std::string& yaml, const std::vector<std::string>& overrides, const std::string& origin,
                    const ModelDirectoryReader& reader) {
  config::Reader given(origin, reader);
  given.add_document(yaml);
  for (const std::string& text : overrides) given.add_override(text);
  return given.finish();
}

Config load_config(const std::string& path, const std::vector<std::string>& overrides, const ModelDirectoryReader& reader) {
  return parse_config(read_input(path, limits::config_bytes), overrides, path, reader);
}

}  // namespace plait
