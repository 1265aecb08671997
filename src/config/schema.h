// The one table of every configuration key, made of the lines that config/config.h declares. Private to config/*.cpp.
//
// Reading, `--set`, validation, writing and docs/configuration.md are all loops over this table, so a key that is declared is
// read, checked, written and documented, and one that is not is an error.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "config/config.h"

namespace plait::config {

// {file: PATH} in place of a name.
struct FileValue {
  std::string path;
  std::shared_ptr<const ScheduleFile> content;
  std::string problem;  // why there is no content
};

// The types a key can have, and `auto`, which stands for values of any of them. What is an enumeration in the structs is a
// string here: its name.
using Value =
    std::variant<bool, std::int64_t, std::uint64_t, double, std::string, std::vector<std::string>, std::vector<std::int64_t>,
                 std::vector<double>, std::vector<AxisConfig>, FileValue, std::vector<DataSourceConfig>, Automatic>;

// What a single value has to satisfy. Rules that relate several keys are CrossRules.
struct Rule {
  std::string words;                                // for messages and documentation: "at least 1"
  std::function<std::string(const Value&)> broken;  // empty: the value is fine; else why it is not
  std::vector<std::string> names;                   // the valid names, for suggestions
  std::string reason = {};                          // why a number has these bounds, for documentation
};

enum class Presence { optional, required };

struct Field {
  std::string path;  // "train.optimizer.lr"
  std::function<Value(const Config&)> get;
  std::function<void(Config&, const Value&)> set;
  Value type;  // some value of the key's type, which is not `auto`
  Rule rule;
  std::string meaning;
  Presence presence = Presence::optional;
  bool takes_auto = false;  // `auto` may stand for the value
  bool planned = false;     // `auto` is decided by the planner, before anything runs
  // Reads the file that may be given instead of a name.
  std::function<FileValue(const std::string& path)> open = {};
  bool per_host = false;   // it names something of the host that a rank is on, so ranks of a job may differ in it
  bool shorthand = false;  // it stands for other keys, which are filled in when it is read: never written
};

struct Section {
  std::string path;  // "train.optimizer"
  std::string meaning;
};

// A rule over several keys. It is evaluated only when each of its keys is fine by itself and, unless it judges open ones too,
// none is left to the planner.
struct CrossRule {
  std::vector<std::string> keys;                     // the first is the one reported
  std::string words;                                 // for documentation
  std::function<std::string(const Config&)> broken;  // empty: it is not; else what would have been right, with the figures
  bool judges_open = false;                          // by what is known of them (config/job_rules.h)
};

struct Preset {
  std::string name;
  std::string meaning;
  ModelConfig model;
};

// Axes of study.scaling: isoflop that are no keys: compute budgets, 6 N D, and sizes N (study/isoflop_grid.h).
inline constexpr std::string_view flops_axis = "flops", parameters_axis = "parameters";
inline bool is_isoflop_axis(std::string_view key) { return key == flops_axis || key == parameters_axis; }

// Of study.measure.rounds: "3..10", or "5" for exactly five; nothing for anything else.
struct RoundRange {
  int least = 1, most = 1;
};
std::optional<RoundRange> round_range(const std::string& text);

const std::vector<Section>& sections();  // in the order of the structs
const std::vector<Field>& fields();      // in the order of the structs
const std::vector<CrossRule>& cross_rules();
const std::vector<Preset>& presets();

const Field* find_field(const std::string& path);
bool is_section(const std::string& path);

// "integer", "list of strings", ... as documentation and messages call the type of a key.
std::string type_name(const Field& field);

// "a, b and c".
std::string listed(const std::vector<std::string>& words);

// The built-in schedules of which something holds, each between `quote`s: for messages and documentation.
std::string listed_schedules(bool (*holds)(const ScheduleRow&), const std::string& quote = "`");

// One value as it stands in a YAML file: doubles are the shortest text that reads back to the same bits, strings are quoted
// where YAML would take them for something else.
std::string yaml_text(const Value& value);
// The same of a YAML scalar that was read, which may have been quoted.
AxisValue axis_value(const std::string& scalar, bool quoted);
bool is_automatic(const Value& value);
bool is_left_to_planner(const Field& field, const Config& config);

using Report = std::function<void(const Field&, const std::string& why)>;
// Tells of every rule that `config` breaks, first those of single keys, then those of several. Keys that are `bad` already are
// told of no more, and nothing is compared with them. With `of`, only of the rules that relate this key to others.
void check(const Config& config, std::set<std::string> bad, const Report& report, const std::string& of = "");

}  // namespace plait::config
