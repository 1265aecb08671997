#include "study/expansion.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <set>
#include <sstream>

#include "config/schema.h"
#include "core/error.h"
#include "core/limits.h"
#include "core/parse_number.h"
#include "study/expression.h"
#include "study/isoflop_grid.h"
#include "verify/layouts.h"

namespace plait::study {
namespace {

constexpr const char* layout_axis = "layout";
constexpr const char* ranks_axis = "launch.ranks";
constexpr const char* axes_key = "study.axes";
constexpr std::size_t most_listed = 100'000;
constexpr std::int64_t most_size = limits::ranks.most;  // on an axis of a mesh
constexpr std::int64_t most_product = 1 << 20;          // of multiplied sizes: larger ones have a rule that says so

// What the planner decides of a layout that is `auto`. Not recompute: it is for memory, and changes what is compared.
std::vector<std::string> open_layout() {
  std::vector<std::string> overrides;
  for (const Name<plait::Axis>& axis : names<plait::Axis>) overrides.push_back(axis_key(axis.value) + "=auto");
  overrides.insert(overrides.end(), {"parallel.schedule=auto", "parallel.virtual_stages=auto", "parallel.zero=auto"});
  return overrides;
}

using Values = std::vector<AxisValue>;  // one of each axis

// Every combination, the last axis fastest.
std::vector<Values> combinations(const std::vector<AxisConfig>& axes) {
  std::vector<Values> all{{}};
  for (const AxisConfig& axis : axes) {
    std::vector<Values> longer;
    if (all.size() * axis.values.size() > most_listed)
      throw ConfigError({{axes_key, "", fmt::format("must list at most {} points", most_listed), "", 0}});
    for (const Values& values : all) {
      for (const AxisValue& value : axis.values) longer.emplace_back(values).push_back(value);
    }
    all = std::move(longer);
  }
  return all;
}

// The configuration without the model keys that its preset gives, so that another preset can give its own.
std::string yaml_for_presets(const Config& config) {
  const auto preset = std::ranges::find(config::presets(), config.model.preset, &config::Preset::name);
  if (preset == config::presets().end()) return to_yaml(config);
  Config shape;
  shape.model = preset->model;
  std::set<std::string> given_by_it;  // lines
  for (const config::Field& field : config::fields()) {
    if (!field.path.starts_with("model.") || field.path == "model.preset") continue;
    const std::string text = config::yaml_text(field.get(config));
    if (text != config::yaml_text(field.get(shape))) continue;
    given_by_it.insert("  " + field.path.substr(std::string("model.").size()) + ": " + text);
  }
  std::istringstream lines(to_yaml(config));
  std::string kept;
  bool in_model = false;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(' ')) in_model = line == "model:";
    if (!in_model || !given_by_it.contains(line)) kept += line + "\n";
  }
  return kept;
}

// A point's ranks are started by its own process, even if another launcher has started the study.
void start_here(Config& config) {
  if (config.launch.mode == LaunchMode::external) {
    throw ConfigError(
        {{"launch.mode", "external", "must be threads or processes, since a study starts the ranks of its points", "", 0}});
  }
  if (config.launch.mode.is_auto()) config.launch.mode = LaunchMode::threads;
}

class Expansion {
 public:
  Expansion(const Config& study, int ranks_here, Vocabulary vocabulary)
      : study_(study), ranks_here_(ranks_here), vocabulary_(std::move(vocabulary)) {
    for (const std::string& text : study.study.skip) skip_.emplace_back(text, "study.skip");
    Config base = study;
    const std::uint64_t seed = base.run.seed;
    base.run = RunConfig{};
    base.run.seed = seed;
    base.verify = {}, base.study = {}, base.bounds = {};
    start_here(base);
    base.launch.ranks = automatic;  // its value follows for each point, and need not suit the file's own layout
    base_ = yaml_for_presets(base);
  }

  std::vector<Draft> run(const std::vector<AxisConfig>& axes) {
    axes_ = axes;
    for (const Values& values : combinations(axes)) add(values);
    return std::move(drafts_);
  }

 private:
  void add(const Values& values) {
    std::size_t layout = axes_.size();
    Coordinates coordinates;
    std::vector<std::string> overrides;
    for (std::size_t n = 0; n < axes_.size(); ++n) {
      coordinates.emplace_back(axes_[n].key, values[n].text);
      if (axes_[n].key == layout_axis) {
        layout = n;
      } else if (!config::is_isoflop_axis(axes_[n].key)) {
        overrides.push_back(axes_[n].key + "=" + values[n].yaml);
      }
    }
    if (layout == axes_.size()) return add_point(std::move(coordinates), {}, overrides);
    const std::string& text = values[layout].text;
    if (text == "auto") return add_point(std::move(coordinates), open_layout(), overrides);
    if (text != "all") return add_point(std::move(coordinates), layout_overrides(text), overrides);
    std::int64_t said = 0;
    try {
      said = size_of(overrides, ranks_axis, study_.launch.ranks.value_or(0));
    } catch (const ConfigError&) {
      return add_point(std::move(coordinates), {}, overrides);  // reports the problem
    }
    const int ranks = said > 0 ? static_cast<int>(said) : ranks_here_;
    for (const verify::LayoutRequest& request : verify::all_layouts(ranks, study_.parallel)) {
      coordinates[layout].second = request.text;
      add_point(coordinates, {request.overrides.begin() + 1, request.overrides.end()}, overrides);
    }
  }

  // The axis that a layout takes for 1 where it does not say: here what the others leave of the ranks.
  static std::vector<std::string> layout_overrides(const std::string& text) {
    std::vector<std::string> overrides = verify::parse_layout(text, axes_key).overrides;
    overrides.erase(overrides.begin());  // the ranks, which the point gives
    overrides.front() = axis_key(rest_axis) + "=auto";
    return overrides;
  }

  void add_point(Coordinates coordinates, std::vector<std::string> layout, const std::vector<std::string>& of_axes) {
    if (drafts_.size() >= most_listed)
      throw ConfigError({{axes_key, "", fmt::format("must list at most {} points", most_listed), "", 0}});
    Draft& draft = drafts_.emplace_back();
    draft.coordinates = std::move(coordinates);
    std::vector<std::string> overrides = std::move(layout);
    overrides.insert(overrides.end(), of_axes.begin(), of_axes.end());
    try {
      draft.ranks = count_ranks(overrides);
      overrides.push_back(fmt::format("{}={}", ranks_axis, draft.ranks));
      give_rest(overrides, draft.ranks);
      scale(overrides, of_axes, draft.ranks);
      if (study_.study.scaling == Scaling::isoflop) shape(overrides, draft.coordinates);
      Config config = parse_config(base_, overrides, axes_key);
      start_here(config);
      draft.config = std::move(config);
    } catch (const ConfigError& error) {
      draft.pruning = Pruning::rule;
      draft.because = problem_text(error);
      return;
    }
    for (const Expression& expression : skip_) {
      if (expression.holds(*draft.config) != true) continue;
      draft.pruning = Pruning::skip;
      draft.because = "study.skip: " + expression.text();
      return;
    }
  }

  // The last override of a key; 0: auto. `base`: the value without an override. ConfigError for an invalid size, which an
  // override derived from it would hide.
  static std::int64_t size_of(const std::vector<std::string>& overrides, const std::string& key, std::int64_t base) {
    std::int64_t value = base;
    for (const std::string& text : overrides) {
      if (!text.starts_with(key + "=")) continue;
      const std::string said = text.substr(key.size() + 1);
      const auto number = whole_number<std::int64_t>(said);
      if (said != "auto" && (!number || *number < 0 || *number > most_size))
        throw ConfigError({{key, said, fmt::format("must be auto or a whole number from 1 to {}", most_size), "", 0}});
      value = number.value_or(0);
    }
    return value;
  }

  // The given number; else the product of the layout; else this machine's number.
  int count_ranks(const std::vector<std::string>& overrides) const {
    if (const std::int64_t said = size_of(overrides, ranks_axis, study_.launch.ranks.value_or(0)); said > 0)
      return static_cast<int>(said);
    const AxisSizes sizes = sizes_of(overrides);
    std::int64_t ranks = 1;
    for (const AxisRow& row : axis_table) {
      if (sizes[row.axis] == 0 || ranks > most_product / sizes[row.axis]) return ranks_here_;
      ranks *= sizes[row.axis];
    }
    return static_cast<int>(ranks);
  }

  AxisSizes sizes_of(const std::vector<std::string>& overrides) const {
    return AxisSizes::of_rows(
        [&](const AxisRow& row) { return size_of(overrides, axis_key(row.axis), study_.parallel.size[row.axis].value_or(0)); });
  }

  void give_rest(std::vector<std::string>& overrides, int ranks) const {
    const AxisSizes said = sizes_of(overrides), whole = with_rest(said, ranks);
    if (whole != said) overrides.push_back(fmt::format("{}={}", axis_key(rest_axis), whole[rest_axis]));
  }

  // Growing sizes are taken from the point on one rank, so only the results have to satisfy the rules.
  void scale(std::vector<std::string>& overrides, const std::vector<std::string>& of_axes, int ranks) const {
    if (study_.study.scaling == Scaling::strong || study_.study.scaling == Scaling::isoflop || ranks == 1) return;
    std::vector<std::string> serial = of_axes;
    for (const std::string& text : verify::serial_overrides()) serial.push_back(text);
    serial.insert(serial.end(), {"launch.ranks=1", "train.micro_batch=1"});
    const Config one = parse_config(base_, serial, axes_key);
    const auto grow = [&](const char* key, std::int64_t value) {
      if (value > std::numeric_limits<std::int64_t>::max() / ranks)
        throw ConfigError({{key, std::to_string(value), fmt::format("is too large for {} ranks", ranks), "", 0}});
      overrides.push_back(fmt::format("{}={}", key, value * ranks));
    };
    if (study_.study.scaling == Scaling::weak) grow("train.global_batch", one.train.global_batch);
    if (study_.study.scaling == Scaling::model) grow("model.layers", one.model.layers);
  }

  void shape(std::vector<std::string>& overrides, const Coordinates& coordinates) const {
    IsoflopRequest request;
    std::string wanted;
    for (const auto& [key, text] : coordinates) {
      if (!config::is_isoflop_axis(key)) continue;
      (key == config::flops_axis ? request.budgets : request.sizes).push_back(std::strtod(text.c_str(), nullptr));
      wanted += (wanted.empty() ? "" : " ") + key + "=" + text;
    }
    const Config base = parse_config(base_, overrides, axes_key);
    const IsoflopPoint point = isoflop_grid(base, vocabulary_(base), request).front();
    if (!point.problem.empty()) throw ConfigError({{axes_key, wanted, "cannot be: " + point.problem, "", 0}});
    overrides.insert(overrides.end(), point.overrides.begin(), point.overrides.end());
  }

  const Config& study_;
  const int ranks_here_;
  const Vocabulary vocabulary_;
  std::vector<Expression> skip_;
  std::string base_;
  std::vector<AxisConfig> axes_;
  std::vector<Draft> drafts_;
};

// A layout without the axis that takes what the others leave of the ranks.
std::string without_rest(const std::string& text, const ParallelConfig& parallel) {
  std::vector<std::string> parts;
  for (const std::string& part : verify::split_overrides(text, axes_key)) {
    if (!part.starts_with(to_string(rest_axis) + "=")) parts.push_back(part);
  }
  if (parts.empty()) {
    AxisSet::all().without(rest_axis).for_each(
        [&](plait::Axis axis) { parts.push_back(to_string(axis) + "=" + to_string(parallel.size[axis])); });
  }
  return fmt::format("{}", fmt::join(parts, " "));
}

}  // namespace

std::string problem_text(const ConfigError& error) {
  std::vector<std::string> texts;
  for (const ConfigProblem& p : error.problems()) texts.push_back(fmt::format("{}={} {}", p.path, p.value, p.rule));
  return texts.empty() ? error.what() : fmt::format("{}", fmt::join(texts, "; "));
}

std::vector<Draft> expand(const Config& study, int ranks_here, const Vocabulary& vocabulary) {
  return Expansion(study, ranks_here, vocabulary).run(study.study.axes);
}

std::vector<Draft> expand_at(const Config& study, int ranks) {
  std::vector<AxisConfig> axes;
  const AxisConfig at_ranks{ranks_axis, {config::axis_value(std::to_string(ranks), false)}};
  std::set<int> said;  // on the axis that this replaces
  for (const AxisConfig& axis : study.study.axes) {
    if (axis.key != ranks_axis) continue;
    for (const AxisValue& value : axis.values) {
      if (const auto number = whole_number<int>(value.text); number && *number > 0) said.insert(*number);
    }
  }
  // Layouts are listed for this many ranks; without a number, for a host's.
  constexpr int host_ranks = 8;
  if (said.empty()) said.insert(static_cast<int>(study.launch.ranks.value_or(std::min(ranks, host_ranks))));
  axes.push_back(at_ranks);
  for (const AxisConfig& axis : study.study.axes) {
    if (axis.key == ranks_axis) continue;
    AxisConfig& kept = axes.emplace_back(AxisConfig{axis.key, {}});
    for (const AxisValue& value : axis.values) {
      std::vector<std::string> layouts{value.text};
      if (axis.key == layout_axis && value.text == "all") {
        layouts.clear();
        for (const int number : said) {
          for (const verify::LayoutRequest& request : verify::all_layouts(number, study.parallel))
            layouts.push_back(request.text);
        }
      }
      for (std::string& layout : layouts) {
        const bool is_single = axis.key == layout_axis && layout != "auto";
        const AxisValue next = is_single ? config::axis_value(without_rest(layout, study.parallel), true) : value;
        if (std::ranges::find(kept.values, next) == kept.values.end()) kept.values.push_back(next);
      }
    }
  }
  return Expansion(study, ranks, data::vocabulary).run(axes);
}

void apply_skip(const Config& study, Draft& draft) {
  for (const std::string& text : study.study.skip) {
    const Expression expression(text, "study.skip");
    if (!draft.config || expression.holds(*draft.config) != true) continue;
    draft.pruning = Pruning::skip;
    draft.because = "study.skip: " + text;
    return;
  }
}

}  // namespace plait::study
