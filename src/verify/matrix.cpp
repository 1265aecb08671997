#include "verify/matrix.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <set>

#include "config/pair_transport.h"
#include "core/error.h"
#include "launch/launch.h"
#include "parallel/rank_plan.h"
#include "site/devices.h"
#include "site/outside_launcher.h"
#include "verify/layouts.h"

namespace plait::verify {
namespace {

template <typename T>
void append(std::vector<T>& list, const std::vector<T>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

// A variant: "llama: model.norm=rms_norm model.mlp=swiglu".
struct Variant {
  std::string name;
  std::vector<std::string> overrides;
};

Variant parse_variant(const std::string& text) {
  const auto colon = text.find(':');
  Variant variant{text.substr(0, colon), {}};
  const bool is_name = !variant.name.empty() && variant.name.find_first_of(" \t=/") == std::string::npos;
  if (colon == std::string::npos || !is_name) {
    throw ConfigError({{"verify.variants", text, "must be `name: path=value path=value ...`", "", 0}});
  }
  variant.overrides = split_overrides(text.substr(colon + 1), "verify.variants");
  return variant;
}

std::vector<VerifyModel> models_of(const ConfigSource& source, const Config& base) {
  std::vector<Variant> variants = {{base.model.preset.empty() ? "base" : base.model.preset, {}}};
  for (const std::string& text : base.verify.variants) variants.push_back(parse_variant(text));
  std::set<std::string> names;
  std::vector<VerifyModel> models;
  for (const Variant& variant : variants) {
    if (!names.insert(variant.name).second) {
      throw ConfigError({{"verify.variants", variant.name, "is already the name of another model in this file", "", 0}});
    }
    VerifyModel model{variant.name, variant.overrides, {}, {}};
    std::vector<std::string> overrides = variant.overrides;
    append(overrides, serial_overrides());
    try {
      model.serial = source(overrides);
      model.tokenizer = data::create_tokenizer(model.serial);
    } catch (const ConfigError& error) {
      if (models.empty()) throw;  // about the file itself
      std::vector<ConfigProblem> problems = error.problems();
      if (problems.empty()) problems.push_back({"verify.variants", variant.name, error.what(), "", 0});
      for (ConfigProblem& problem : problems) problem.rule += fmt::format(" (variant \"{}\")", variant.name);
      throw ConfigError(std::move(problems));
    }
    models.push_back(std::move(model));
  }
  return models;
}

// The problem on one line.
std::string reason_of(const ConfigError& error) {
  std::string text;
  for (const ConfigProblem& p : error.problems()) {
    text += (text.empty() ? "" : "; ") + p.path + (p.value.empty() ? "" : "=" + p.value) + ": " + p.rule;
  }
  return text.empty() ? error.what() : text;
}

// Adds the problems of a layout, once if they are the same for more than one model.
void add_problems(std::vector<ConfigProblem>& problems, const LayoutRequest& request, const ConfigError& error) {
  std::vector<ConfigProblem> list = error.problems();
  if (list.empty()) list.push_back({"verify.layouts", request.text, error.what(), "", 0});
  for (ConfigProblem& problem : list) {
    problem.rule += fmt::format(" (layout \"{}\")", request.text);
    problem.line = 0;
    const auto same = [&](const ConfigProblem& p) { return p.path == problem.path && p.rule == problem.rule; };
    if (std::none_of(problems.begin(), problems.end(), same)) problems.push_back(std::move(problem));
  }
}

class MatrixBuilder {
 public:
  MatrixBuilder(const ConfigSource& source, const Config& base) : source_(source), base_(base) {
    matrix_.models = models_of(source, base);
  }

  // A layout from the file or the command line. ConfigError unless at least one model can be laid out so.
  void add_given(const LayoutRequest& request) {
    if (const std::vector<ConfigProblem> problems = add(request, Order::layout_last); !problems.empty())
      throw ConfigError(problems);
  }
  // A layout of `all`, which leaves each model its variant's settings of `parallel`.
  void add_of_all(const LayoutRequest& request) { add(request, Order::variant_last); }

  // ConfigError if comm.p2p_pairs names places that no layout has.
  VerifyMatrix take() {
    if (most_ranks_ > 0) {
      for (const VerifyModel& model : matrix_.models)
        site::check_pairs(model.serial, site::choose_devices(model.serial), most_ranks_);
    }
    std::stable_sort(matrix_.cases.begin(), matrix_.cases.end(),
                     [](const VerifyCase& a, const VerifyCase& b) { return a.model < b.model; });
    return std::move(matrix_);
  }

 private:
  enum class Order { layout_last, variant_last };

  // Returns the problems if it suits no model.
  std::vector<ConfigProblem> add(const LayoutRequest& request, Order order) {
    bool suits_one = false;
    std::vector<ConfigProblem> problems;
    for (std::size_t m = 0; m < matrix_.models.size(); ++m) {
      try {
        add(request, m, order);
        suits_one = true;
      } catch (const ConfigError& error) {
        matrix_.refused.push_back({matrix_.models[m].name, request.text, reason_of(error)});
        add_problems(problems, request, error);
      }
    }
    return suits_one ? std::vector<ConfigProblem>() : problems;
  }

  void add(const LayoutRequest& request, std::size_t index, Order order) {
    const VerifyModel& model = matrix_.models[index];
    const bool variant_last = order == Order::variant_last;
    std::vector<std::string> overrides = variant_last ? request.overrides : model.overrides;
    append(overrides, variant_last ? model.overrides : request.overrides);
    VerifyCase added{index, "", source_(overrides)};
    added.layout = layout_text(added.config.parallel, base_.parallel);
    const launch::LaunchPlan launch = launch::plan_launch(added.config);
    // Pairs beyond the ranks of a smaller layout are for larger ones.
    const int places = site::places_of_pairs(added.config, site::choose_devices(added.config), launch.ranks);
    std::erase_if(added.config.comm.p2p_pairs,
                  [&](const std::string& text) { return pair_transport(text).value().b >= places; });
    most_ranks_ = std::max(most_ranks_, launch.ranks);
    parallel::make_rank_plan(added.config, parallel::Decision{}, model.tokenizer->vocab(),
                             parallel::resolve_layout(added.config.parallel, launch.ranks), 0, launch.devices.front().kind);
    if (seen_.insert({index, added.layout}).second) matrix_.cases.push_back(std::move(added));
  }

  const ConfigSource& source_;
  const Config& base_;
  VerifyMatrix matrix_;
  std::set<std::pair<std::size_t, std::string>> seen_;
  int most_ranks_ = 0;  // of a layout
};

}  // namespace

VerifyMatrix make_matrix(const ConfigSource& source, const std::vector<std::string>& layouts) {
  const Config base = source({});
  if (site::launch_mode(base) == LaunchMode::external) {
    throw ConfigError({{"launch.mode", base.launch.mode.is_auto() ? "auto" : "external",
                        "must be threads or processes, since verify starts a job for each layout itself", "", 0}});
  }
  MatrixBuilder builder(source, base);
  std::set<std::string> seen;
  for (const std::string& text : layouts.empty() ? base.verify.layouts : layouts) {
    if (!seen.insert(text).second) continue;
    if (text != "all") {
      builder.add_given(parse_layout(text));
      continue;
    }
    for (const std::int64_t ranks : std::set<std::int64_t>(base.verify.ranks.begin(), base.verify.ranks.end())) {
      for (const LayoutRequest& request : all_layouts(static_cast<int>(ranks), base.parallel)) builder.add_of_all(request);
    }
  }
  VerifyMatrix matrix = builder.take();
  if (matrix.cases.empty()) {
    const std::string why = "no layout is left to verify; the first was refused because of " + matrix.refused.front().reason;
    throw ConfigError({{"verify.layouts", "", why, "", 0}});
  }
  return matrix;
}

}  // namespace plait::verify
