#include "config/schema.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <set>
#include <type_traits>

#include <spdlog/fmt/fmt.h>

#include "config/pair_transport.h"
#include "config/schedule_file.h"
#include "config/suggestion.h"
#include "config/tcp_place.h"
#include "core/parse_number.h"

namespace plait::config {
namespace {

const std::string automatic_name = "auto";

std::string list(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

// A member of the structs that may be `auto`, and the type of its other values.
template <typename T>
struct Open : std::false_type {
  using Type = T;
};
template <typename T>
struct Open<Auto<T>> : std::true_type {
  using Type = T;
};

// Bounds as documentation and messages show them: 10^12, not thirteen digits; 1e30.
std::string shown(std::int64_t bound) {
  std::string digits = std::to_string(bound);
  const bool is_power = digits.size() > 9 && digits.find_first_not_of('0', 1) == std::string::npos && digits[0] == '1';
  return is_power ? fmt::format("10^{}", digits.size() - 1) : digits;
}
std::string shown(double bound) {
  std::string text = fmt::format("{}", bound);
  if (const auto plus = text.find('+'); plus != std::string::npos) text.erase(plus, 1);
  return text;
}

template <typename T, typename Holds>
Rule rule(std::string words, Holds holds) {
  return {
      words, [words, holds](const Value& value) { return holds(std::get<T>(value)) ? std::string() : "must be " + words; }, {}};
}

// Sections that say nothing about how a run trains.
constexpr std::array not_of_a_run = {"run.", "verify.", "study.", "bounds."};

bool is_positive(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' && std::isfinite(value) && value > 0;
}

// Why a study cannot have this axis; "" if it can.
std::string axis_problem(const AxisConfig& axis) {
  const bool is_layout = axis.key == "layout";
  const auto stands_for = [&](const char* section) { return axis.key.starts_with(section); };
  if (!is_layout && !is_isoflop_axis(axis.key) && find_field(axis.key) == nullptr) {
    std::vector<std::string> keys{"layout"};
    for (const Field& field : fields()) keys.push_back(field.path);
    const std::string nearest = nearest_of(axis.key, keys);
    return "has '" + axis.key + "', which is no key" + (nearest.empty() ? "" : ": did you mean " + nearest + "?");
  }
  if (axis.key == "run.seed")
    return "has 'run.seed', which is one for all points of a study: measure another seed in a study of its own";
  if (std::ranges::any_of(not_of_a_run, stands_for)) return "has '" + axis.key + "', which changes nothing in how a point runs";
  if (axis.values.empty()) return "has no values for '" + axis.key + "'";
  for (std::size_t n = 0; n < axis.values.size(); ++n) {
    const AxisValue& value = axis.values[n];
    if (std::find(axis.values.begin(), axis.values.begin() + static_cast<std::ptrdiff_t>(n), value) !=
        axis.values.begin() + static_cast<std::ptrdiff_t>(n))
      return "has '" + value.text + "' twice for '" + axis.key + "'";
    if (is_isoflop_axis(axis.key) && !is_positive(value.text))
      return "has '" + value.text + "' for '" + axis.key + "': must be a number above 0, as 1e18";
    if (is_layout && value.text != "auto" && value.text != "all" && value.text.find('=') == std::string::npos)
      return "has the layout '" + value.text + "': must be auto, all, or keys of `parallel` as in \"pipeline=2 tensor=2\"";
  }
  return "";
}

// What lines of declare() (config/config.h) say of a value.
struct Rules {
  static Rule any(std::string words) {
    return {std::move(words), [](const Value&) { return std::string(); }, {}};
  }

  static Rule one_of(std::vector<std::string> names) {
    const std::string words = names.size() == 1 ? names[0] : "one of " + list(names);
    auto broken = [names, words](const Value& value) {
      return std::ranges::find(names, std::get<std::string>(value)) != names.end() ? "" : "must be " + words;
    };
    return {words, std::move(broken), std::move(names)};
  }

  static Rule whole(std::int64_t least, const Limit& limit) {
    Rule made = rule<std::int64_t>(fmt::format("{} to {}", least, shown(limit.most)),
                                   [=](std::int64_t v) { return v >= least && v <= limit.most; });
    made.reason = limit.reason;
    return made;
  }

  static Rule real(double least, double most, std::string reason) {
    Rule made = rule<double>(shown(least) + " to " + shown(most), [=](double v) { return v >= least && v <= most; });
    made.reason = std::move(reason);
    return made;
  }

  static Rule fraction() {
    return rule<double>("between 0 and 1", [](double v) { return v >= 0 && v <= 1; });
  }

  static Rule fraction_below_one() {
    return rule<double>("at least 0 and less than 1, also in 32 bits",
                        [](double v) { return v >= 0 && static_cast<float>(v) < 1; });
  }

  static Rule not_empty() {
    return rule<std::string>("not empty", [](const std::string& v) { return !v.empty(); });
  }

  static Rule not_empty(const Limit& bytes) {
    Rule made = rule<std::string>(fmt::format("not empty, at most {} bytes", bytes.most),
                                  [=](const std::string& v) { return !v.empty() && std::ssize(v) <= bytes.most; });
    made.reason = bytes.reason;
    return made;
  }

  // Of the folder in run.dir.
  static Rule folder_name(const Limit& bytes) {
    const std::string words = fmt::format(
        "one folder's name (run.dir says where it is): not empty, not . or .., without /, at most {} bytes", bytes.most);
    Rule made = rule<std::string>(words, [=](const std::string& v) {
      return !v.empty() && v != "." && v != ".." && std::ranges::none_of(v, [](char c) { return c == '/' || c == '\0'; }) &&
             std::ssize(v) <= bytes.most;
    });
    made.reason = bytes.reason;
    return made;
  }

  static Rule rendezvous() {
    return rule<std::string>("a path, tcp, tcp://:PORT, tcp://HOST:PORT, or empty",
                             [](const std::string& v) { return !v.starts_with("tcp:") || tcp_place(v).has_value(); });
  }

  static Rule yes_or_no() { return any("true or false"); }

  // An integer of which only values up to `supported` are implemented.
  static Rule up_to(std::int64_t first, std::int64_t supported, std::string feature) {
    const std::string words = fmt::format("{} to {} ({} is not supported yet)", first, supported, feature);
    auto broken = [=](const Value& value) -> std::string {
      const auto v = std::get<std::int64_t>(value);
      if (v < first) return "must be " + words;
      return v > supported ? fmt::format("must be {} to {}: {} is not supported yet", first, supported, feature) : "";
    };
    return {words, std::move(broken), {}};
  }

  static Rule list_of(const std::string& what) {
    return rule<std::vector<std::string>>("a list of " + what + ", none of them empty", [](const auto& v) {
      return std::ranges::none_of(v, [](const std::string& text) { return text.empty(); });
    });
  }

  static Rule globs() { return list_of("paths or globs"); }

  static Rule data_sources() {
    constexpr double least = 1e-6, most = 1e6;
    Rule made = rule<std::vector<DataSourceConfig>>(
        fmt::format("a list of {{files: [GLOB, ...], weight: {} to {}}}, at most {}", shown(least), shown(most),
                    limits::data_sources.most),
        [=](const auto& v) {
          return std::ssize(v) <= limits::data_sources.most && std::ranges::all_of(v, [=](const DataSourceConfig& source) {
                   return source.weight >= least && source.weight <= most && !source.files.empty() &&
                          std::ranges::none_of(source.files, [](const std::string& glob) { return glob.empty(); });
                 });
        });
    made.reason = limits::data_sources.reason;
    return made;
  }

  static Rule preset_name() {
    std::vector<std::string> names = preset_names();
    auto broken = [names](const Value& value) {
      const auto& name = std::get<std::string>(value);
      return name.empty() || std::ranges::find(names, name) != names.end() ? "" : "must be one of " + list(names);
    };
    return {"empty or one of " + list(names), std::move(broken), std::move(names)};
  }

  static Rule bound() {
    return rule<std::string>("none, or a percentage from 0% to 100%",
                             [](const std::string& v) { return v == "none" || percentage(v).has_value(); });
  }

  static Rule each(const std::string& list, std::int64_t least, const Limit& limit) {
    Rule made = rule<std::vector<std::int64_t>>(
        fmt::format("{}, each {} to {}", list, least, shown(limit.most)),
        [=](const auto& v) { return std::ranges::all_of(v, [=](std::int64_t n) { return n >= least && n <= limit.most; }); });
    made.reason = limit.reason;
    return made;
  }

  static Rule each_half(const std::string& list, const Limit& limit) {
    const auto most = static_cast<double>(limit.most);
    Rule made =
        rule<std::vector<double>>(fmt::format("{}, each 0 to {}, whole or half", list, shown(limit.most)), [=](const auto& v) {
          return std::ranges::all_of(v, [=](double n) { return n >= 0 && n <= most && 2 * n == std::floor(2 * n); });
        });
    made.reason = limit.reason;
    return made;
  }

  static Rule list_of_at_most(const Limit& limit, const std::string& words) {
    Rule made = rule<std::vector<std::string>>(fmt::format("{}, at most {}", words, limit.most),
                                               [=](const auto& v) { return std::ssize(v) <= limit.most; });
    made.reason = limit.reason;
    return made;
  }

  static Rule not_empty_list(std::string words) {
    return rule<std::vector<std::string>>(std::move(words), [](const auto& v) { return !v.empty(); });
  }

  static Rule different_gpus() {
    const std::int64_t last = limits::ranks.most - 1;
    return rule<std::vector<std::int64_t>>(
        fmt::format("a list of GPU numbers from 0 to {}, each once", last), [last](const auto& v) {
          const std::set<std::int64_t> once(v.begin(), v.end());
          return once.size() == v.size() && (v.empty() || (*once.begin() >= 0 && *once.rbegin() <= last));
        });
  }

  static Rule pairs() {
    return rule<std::vector<std::string>>(
        "a list of pairs as 0-1=host, each pair once: two GPUs and " + names_listed<Transport>(), [](const auto& v) {
          std::set<std::pair<int, int>> seen;
          return std::ranges::all_of(v, [&](const std::string& text) {
            const auto pair = pair_transport(text);
            return pair && seen.insert({pair->a, pair->b}).second;
          });
        });
  }

  static Rule zero_or_at_least_one() {
    Rule made = rule<double>("0, or 1 to 1000", [](double v) { return v == 0 || (v >= 1 && v <= 1000); });
    made.reason = "a layout a thousand times slower is nobody's choice";
    return made;
  }

  static Rule round_range() {
    return rule<std::string>("a number of rounds, or a range of them as 3..10, from 1 to 10000",
                             [](const std::string& v) { return config::round_range(v).has_value(); });
  }

  static Rule axes() {
    return {"a map from keys, or layout, to lists of different values, none empty",
            [](const Value& value) {
              std::set<std::string> seen;
              for (const AxisConfig& axis : std::get<std::vector<AxisConfig>>(value)) {
                if (const std::string why = axis_problem(axis); !why.empty()) return why;
                if (!seen.insert(axis.key).second) return "must have '" + axis.key + "' once";
              }
              return std::string();
            },
            {}};
  }

  // A meaning, which follows from the schedules that there are.
  static std::string virtual_stages_meaning() {
    std::string text = "Stages per pipeline rank: any number with " +
                       listed_schedules([](const ScheduleRow& row) { return row.takes_any_chunks(); });
    for (const ScheduleRow& row : built_in_schedules) {
      if (row.chunks > 1) text += fmt::format("; always {} with `{}`", row.chunks, row.name);
    }
    return text + ". A file says it by itself.";
  }
};

struct Table {
  std::vector<Section> sections;
  std::vector<Field> fields;
};

// Makes rows of a section's lines. `Access` finds the section in a configuration.
template <typename Access>
class Keys : public Rules {
 public:
  // `prefix`: "train.optimizer."
  Keys(std::string prefix, Access access, Table& table) : prefix_(std::move(prefix)), access_(access), table_(table) {}

  template <typename S, typename T>
  void section(const std::string& name, T S::* member, std::string meaning) {
    table_.sections.push_back({prefix_ + name, std::move(meaning)});
    const auto inner = at(member);
    Keys<std::remove_const_t<decltype(inner)>> keys(prefix_ + name + ".", inner, table_);
    T::declare(keys);
  }

  template <typename S, typename T>
  Field& key(const std::string& name, T S::* member, Rule rule, std::string meaning) {
    return add<T>(name, at(member), std::move(rule), std::move(meaning));
  }

  // Its values have names (core/names.h); `auto` is one of them where it is an Auto in the struct.
  template <typename S, typename T>
  Field& choice(const std::string& name, T S::* member, std::string meaning) {
    std::vector<std::string> valid;
    if (Open<T>::value) valid.push_back(automatic_name);
    for (const auto& known : names<typename Open<T>::Type>) valid.emplace_back(known.text);
    return add<T>(name, at(member), one_of(std::move(valid)), std::move(meaning));
  }

  // A number that may be `auto`.
  template <typename S, typename T>
  Field& auto_key(const std::string& name, Auto<T> S::* member, const Rule& rule, std::string meaning) {
    return add<Auto<T>>(name, at(member), or_auto(rule), std::move(meaning));
  }

  // The size of a mesh along one axis.
  template <typename S>
  void size_along(const AxisRow& row, AxisArray<Auto<std::int64_t>> S::* member, const Rule& rule) {
    const auto access = [sizes = at(member), axis = row.axis](auto& config) -> auto& { return sizes(config)[axis]; };
    Field& field = add<Auto<std::int64_t>>(std::string(row.name), access, or_auto(rule), std::string(row.meaning));
    field.planned = row.planned;
  }

  // A built-in schedule, or one from a file.
  Field& schedule(const std::string& name, Auto<ScheduleKind> ParallelConfig::* member, std::string meaning) {
    Field& field = choice(name, member, std::move(meaning));
    std::erase(field.rule.names, to_string(ScheduleKind::file));
    Rule by_name = one_of(field.rule.names);
    field.rule.words = by_name.words + ", or {file: PATH}";
    field.rule.broken = [by_name, words = field.rule.words](const Value& value) {
      const auto* file = std::get_if<FileValue>(&value);
      if (file != nullptr) return file->content ? std::string() : file->problem;
      return is_automatic(value) || by_name.broken(value).empty() ? "" : "must be " + words;
    };
    field.get = [get_name = field.get](const Config& config) {
      const ParallelConfig& p = config.parallel;
      return p.schedule == ScheduleKind::file ? Value(FileValue{schedule_name(p), p.schedule_file, "has not been read"})
                                              : get_name(config);
    };
    field.set = [set_name = field.set](Config& config, const Value& value) {
      const auto* file = std::get_if<FileValue>(&value);
      config.parallel.schedule_file = file != nullptr ? file->content : nullptr;
      if (file == nullptr) return set_name(config, value);
      config.parallel.schedule = ScheduleKind::file;
    };
    field.open = [](const std::string& path) {
      FileValue value{path, nullptr, ""};
      value.content = read_schedule_file(path, value.problem);
      return value;
    };
    return field;
  }

  static void required(Field& field) { field.presence = Presence::required; }

  // Its `auto` is the planner's to decide.
  static Field& planned(Field& field) {
    field.planned = true;
    return field;
  }

  // It stands for other keys.
  static void shorthand(Field& field) { field.shorthand = true; }

  // Ranks of a job may differ in it. Everything else they have to agree on (launch/agreement.h).
  static Field& per_host(Field& field) {
    field.per_host = true;
    return field;
  }

 private:
  template <typename S, typename T>
  auto at(T S::* member) const {
    return [outer = access_, member](auto& config) -> auto& { return outer(config).*member; };
  }

  // What the structs hold, as a Value and back: an enumeration by its name. Nothing for a name that there is not.
  template <typename T>
  static Value value_of(const T& held) {
    if constexpr (Named<T>) {
      return to_string(held);
    } else {
      return held;
    }
  }
  template <typename T>
  static std::optional<T> held_for(const Value& value) {
    if constexpr (Named<T>) {
      return named<T>(std::get<std::string>(value));
    } else {
      return std::get<T>(value);
    }
  }

  template <typename T, typename Member>
  Field& add(const std::string& name, const Member& access, Rule rule, std::string meaning) {
    using Given = Open<T>::Type;
    const auto get = [access](const Config& config) {
      const T& held = access(config);
      if constexpr (Open<T>::value) {
        return held.is_auto() ? Value(automatic) : value_of(held.value());
      } else {
        return value_of(held);
      }
    };
    const auto set = [access](Config& config, const Value& value) {
      if constexpr (Open<T>::value) {
        if (is_automatic(value)) {
          access(config) = automatic;
          return;
        }
      }
      // A name that there is not leaves the value as it is: the rule has told.
      if (std::optional<Given> given = held_for<Given>(value)) access(config) = std::move(*given);
    };
    if constexpr (Open<T>::value) {
      rule.broken = [of_given = std::move(rule.broken)](const Value& value) {
        return is_automatic(value) ? std::string() : of_given(value);
      };
    }
    return table_.fields.emplace_back(Field{.path = prefix_ + name,
                                            .get = get,
                                            .set = set,
                                            .type = value_of(Given{}),
                                            .rule = std::move(rule),
                                            .meaning = std::move(meaning),
                                            .takes_auto = Open<T>::value});
  }

  // The rule of a number, with words of one that may be `auto`.
  static Rule or_auto(const Rule& number) {
    Rule made = number;
    made.words = "auto or " + number.words;
    made.broken = [broken = number.broken](const Value& value) {
      std::string why = broken(value);
      if (why.starts_with("must be ")) why.insert(8, "auto or ");
      return why;
    };
    return made;
  }

  std::string prefix_;
  Access access_;
  Table& table_;
};

const Table& table() {
  static const Table all = [] {
    Table made;
    const auto whole = [](auto& config) -> auto& { return config; };
    Keys<std::remove_const_t<decltype(whole)>> keys("", whole, made);
    Config::declare(keys);
    return made;
  }();
  return all;
}

}  // namespace

std::optional<RoundRange> round_range(const std::string& text) {
  const std::size_t dots = text.find("..");
  const auto number = [](std::string_view digits) -> std::optional<int> {
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool whole = error == std::errc{} && end == digits.data() + digits.size();
    return whole && value >= 1 && value <= 10'000 ? std::optional(value) : std::nullopt;
  };
  const auto least = number(std::string_view(text).substr(0, dots));
  const auto most = dots == std::string::npos ? least : number(std::string_view(text).substr(dots + 2));
  return least && most && *least <= *most ? std::optional(RoundRange{*least, *most}) : std::nullopt;
}

const std::vector<Section>& sections() { return table().sections; }
const std::vector<Field>& fields() { return table().fields; }

const Field* find_field(const std::string& path) {
  const auto found = std::ranges::find(fields(), path, &Field::path);
  return found == fields().end() ? nullptr : &*found;
}

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t n = 0; n < words.size(); ++n) text += (n == 0 ? "" : n + 1 < words.size() ? ", " : " and ") + words[n];
  return text;
}

std::string listed_schedules(bool (*holds)(const ScheduleRow&), const std::string& quote) {
  std::vector<std::string> list;
  for (const ScheduleRow& row : built_in_schedules) {
    if (holds(row)) list.push_back(quote + std::string(row.name) + quote);
  }
  return listed(list);
}

bool is_section(const std::string& path) { return std::ranges::find(sections(), path, &Section::path) != sections().end(); }

std::string type_name(const Field& field) {
  static constexpr const char* types[] = {"true or false",   "integer",          "integer",         "number",       "string",
                                          "list of strings", "list of integers", "list of numbers", "map of lists", "file",
                                          "list of maps"};
  return types[field.type.index()];
}

}  // namespace plait::config
