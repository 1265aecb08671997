#include "study/isoflop_grid.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/format.h"
#include "model/model_flops.h"
#include "model/model_shape.h"
#include "train/learning_rate.h"

namespace plait::study {
namespace {

constexpr std::int64_t matrix_alignment = 8;  // of inner widths, for tensor cores

void check_list(const std::string& key, const std::vector<double>& values, double largest,
                std::vector<ConfigProblem>& problems) {
  std::set<double> seen;
  if (values.empty()) problems.push_back({key, "", "must be a list of numbers, not empty", "", 0});
  for (const double value : values) {
    if (!(value > 0 && value <= largest)) {
      problems.push_back({key, fmt::format("{:g}", value), fmt::format("must be above 0 and at most {:g}", largest), "", 0});
    } else if (!seen.insert(value).second) {
      problems.push_back({key, fmt::format("{:g}", value), "is given twice", "", 0});
    }
  }
}

// The models of one family: everything but depth and width is the base configuration's.
class Family {
 public:
  Family(const Config& base, std::int64_t vocab, double aspect_ratio)
      : base_(base), vocab_(vocab), shape_(model::resolve_shape(base.model, vocab, base.data.sequence_length)) {
    aspect_ratio_ = aspect_ratio > 0 ? aspect_ratio : static_cast<double>(shape_.hidden) / static_cast<double>(shape_.layers);
    const std::int64_t tensor = base.parallel.size[segment_axis].value_or(1);
    heads_step_ = tensor * (shape_.heads / shape_.kv_heads);
    inner_step_ = std::lcm(matrix_alignment, tensor);
  }

  ModelConfig model(std::int64_t heads, std::int64_t layers) const {
    ModelConfig made = base_.model;
    made.layers = layers;
    made.heads = heads;
    made.head_dim = shape_.head_dim;
    made.kv_heads = heads * shape_.kv_heads / shape_.heads;
    made.hidden = scaled(shape_.hidden, heads, shape_.heads * shape_.head_dim == shape_.hidden ? 1 : matrix_alignment);
    made.ffn = scaled(shape_.ffn, heads, inner_step_);
    return made;
  }

  std::int64_t parameters(const ModelConfig& model) const { return terms(model).matrix_parameters; }

  model::FlopTerms terms(const ModelConfig& model) const {
    const std::int64_t sequence = base_.data.sequence_length;
    return model::flop_terms(model::resolve_shape(model, vocab_, sequence), sequence);
  }

  // The shape nearest to N parameters, weighed against the aspect ratio: 10 % of N counts as much as a factor of 1.5.
  ModelConfig nearest(double size) const {
    ModelConfig best;
    double least = std::numeric_limits<double>::infinity();
    for (std::int64_t heads = heads_step_;; heads += heads_step_) {
      const auto one = static_cast<double>(parameters(model(heads, 1))), two = static_cast<double>(parameters(model(heads, 2)));
      const double layers = 1 + (size - one) / (two - one);
      for (const double whole : {std::floor(layers), std::ceil(layers)}) {
        const auto depth = static_cast<std::int64_t>(std::clamp(whole, 1.0, 1e6));
        const ModelConfig candidate = model(heads, depth);
        const double off = std::abs(std::log(static_cast<double>(parameters(candidate)) / size)) / std::log(1.1);
        const double aspect = static_cast<double>(candidate.hidden) / static_cast<double>(depth);
        const double penalty = off + std::abs(std::log(aspect / aspect_ratio_)) / std::log(1.5);
        if (penalty < least) least = penalty, best = candidate;
      }
      if (one > 2 * size) return best;  // wider ones are even further away
    }
  }

 private:
  // `whole` of the base model at another number of heads, to a multiple of `step`.
  std::int64_t scaled(std::int64_t whole, std::int64_t heads, std::int64_t step) const {
    const double exact = static_cast<double>(whole) * static_cast<double>(heads) / static_cast<double>(shape_.heads);
    return std::max<std::int64_t>(std::llround(exact / static_cast<double>(step)), 1) * step;
  }

  const Config& base_;
  std::int64_t vocab_;
  model::ModelShape shape_;
  double aspect_ratio_ = 1;
  std::int64_t heads_step_ = 1, inner_step_ = 1;
};

std::vector<std::string> model_overrides(const ModelConfig& model) {
  return {fmt::format("model.layers={}", model.layers),
          fmt::format("model.hidden={}", model.hidden),
          fmt::format("model.heads={}", model.heads),
          fmt::format("model.kv_heads={}", model.kv_heads.value()),
          fmt::format("model.head_dim={}", model.head_dim.value()),
          fmt::format("model.ffn={}", model.ffn.value())};
}

std::string text_of(const std::vector<ConfigProblem>& problems) {
  std::vector<std::string> lines;
  for (const ConfigProblem& problem : problems)
    lines.push_back(fmt::format("{}={}: {}", problem.path, problem.value, problem.rule));
  return fmt::format("{}", fmt::join(lines, "; "));
}

std::string size_problem(const IsoflopPoint& point, const ModelConfig& model) {
  const double ratio = static_cast<double>(point.parameters) / point.size;
  if (std::abs(std::log(ratio)) <= std::log(1 + size_tolerance)) return "";
  return fmt::format(
      "no shape with heads of width {} comes near N={:.3g}: the nearest, {} layers of {}, has {:.3g}. Aim at another "
      "size, or take a smaller model.head_dim or vocabulary",
      model.head_dim.value(), point.size, model.layers, model.hidden, static_cast<double>(point.parameters));
}

std::string steps_problem(const IsoflopPoint& point, std::int64_t global_batch, std::int64_t sequence_length) {
  const double off = std::abs(point.flops / point.budget - 1);
  if (point.steps >= 1 && off <= budget_rounding) return "";
  // Rounding is off by half a step at most.
  const double tokens = point.budget / 6 / static_cast<double>(point.parameters);
  const double sequences = 2 * budget_rounding * tokens * static_cast<double>(global_batch) /
                           (static_cast<double>(point.tokens) / static_cast<double>(std::max<std::int64_t>(point.steps, 1)));
  const auto size = static_cast<double>(point.parameters);
  const std::string asked = fmt::format("{:.3g} FLOPs are {} at N={:.3g}", point.budget, plural(point.steps, "step"), size);
  if (sequences >= 1) {
    const auto most = static_cast<std::int64_t>(std::min(sequences, 1e15));
    return fmt::format("{}, which miss it by {:.2g} %: lower train.global_batch to {}or leave this size out of this budget",
                       asked, 100 * off, most == 1 ? "1 " : fmt::format("{} or less, ", most));
  }
  // Not even with batches of one sequence, which could make the budget a multiple of the steps.
  const double step = 6 * size * static_cast<double>(sequence_length);
  if (point.budget < step * (1 - budget_rounding)) {
    return fmt::format(
        "{:.3g} FLOPs are too few for one step at N={:.3g}: the least budget, with train.global_batch=1, is {:.3g}; or leave "
        "this size out of this budget",
        point.budget, size, step);
  }
  return fmt::format(
      "{}, which miss it by {:.2g} %: with train.global_batch=1 take a multiple of {:.3g} FLOPs, or {:.3g} at least; or leave "
      "this size out of this budget",
      asked, 100 * off, step, step / (2 * budget_rounding));
}

IsoflopPoint make_point(const Config& base, const Family& family, const ModelConfig& model, double size, double budget) {
  IsoflopPoint point;
  point.budget = budget;
  point.size = size;
  point.parameters = family.parameters(model);
  const auto per_token = 6 * static_cast<double>(point.parameters);
  const auto batch = static_cast<double>(base.train.global_batch) * static_cast<double>(base.data.sequence_length);
  const double steps = std::round(budget / per_token / batch);
  point.overrides = model_overrides(model);
  point.problem = size_problem(point, model);
  if (steps > 1e12) {
    point.problem = fmt::format("{:.3g} FLOPs are {:.3g} steps: more than can be counted", budget, steps);
    return point;
  }
  point.steps = static_cast<std::int64_t>(steps);
  point.tokens = static_cast<std::int64_t>(std::max(steps, 1.0) * batch);
  point.flops = per_token * steps * batch;
  point.overrides.push_back(fmt::format("train.steps={}", point.steps));
  if (point.problem.empty()) point.problem = steps_problem(point, base.train.global_batch, base.data.sequence_length);
  if (point.problem.empty()) {
    Config config = base;
    config.model = model;
    config.train.steps = point.steps;
    point.problem = text_of(problems_of(config));
  }
  return point;
}

// Number of steps at the end of a run of `steps` in which the rate falls.
std::int64_t wsd_decay(const Config& base, std::int64_t steps) {
  OptimizerConfig wsd = base.train.optimizer;
  wsd.schedule = Decay::wsd;
  return train::LearningRate(wsd, steps).decay_steps();
}

}  // namespace

std::vector<IsoflopPoint> isoflop_grid(const Config& base, std::int64_t vocab, const IsoflopRequest& request) {
  std::vector<ConfigProblem> problems;
  check_list("study.axes flops", request.budgets, 1e40, problems);
  check_list("study.axes parameters", request.sizes, 1e14, problems);
  if (!problems.empty()) throw ConfigError(problems);
  const Family family(base, vocab, request.aspect_ratio);
  std::vector<IsoflopPoint> points;
  std::set<std::pair<std::int64_t, std::int64_t>> shapes;
  for (const double size : request.sizes) {
    const ModelConfig model = family.nearest(size);
    if (!shapes.emplace(model.heads, model.layers).second) {
      problems.push_back(
          {"study.axes parameters", fmt::format("{:g}", size),
           fmt::format("comes out as {} layers of {}, as another size does: take sizes further apart, or a smaller "
                       "model.head_dim",
                       model.layers, model.hidden),
           "", 0});
    }
    for (const double budget : request.budgets) points.push_back(make_point(base, family, model, size, budget));
  }
  if (!problems.empty()) throw ConfigError(problems);
  return points;
}

std::vector<std::int64_t> lengths_that_fork(const Config& base, std::vector<std::int64_t> lengths) {
  std::ranges::sort(lengths);
  std::vector<std::int64_t> forking;
  std::int64_t least = std::max<std::int64_t>(base.train.optimizer.warmup, 1);  // first step at which the trunk may be left
  for (const std::int64_t steps : lengths) {
    const std::int64_t decay = wsd_decay(base, steps), fork = steps - decay;
    if (decay < 1 || fork < least) continue;
    forking.push_back(steps);
    least = fork + 1;
  }
  return forking;
}

std::vector<TrunkFork> wsd_forks(const Config& base, std::vector<std::int64_t> lengths) {
  std::ranges::sort(lengths);
  const std::int64_t warmup = base.train.optimizer.warmup;
  std::vector<TrunkFork> forks;
  std::vector<ConfigProblem> problems;
  for (const std::int64_t steps : lengths) {
    const std::int64_t decay = wsd_decay(base, steps);
    const std::int64_t fork = steps - decay;
    const auto problem = [&, steps](const std::string& rule) {
      problems.push_back({"train.steps", std::to_string(steps), rule, "", 0});
    };
    if (fork < std::max<std::int64_t>(warmup, 1)) {
      problem(
          fmt::format("would leave the trunk at step {}, within the warm-up of {} steps: train longer, or warm up or decay in "
                      "fewer steps",
                      fork, warmup));
    }
    if (decay < 1 && fork >= warmup)
      problem("has no decay, so nothing to fork for: set train.optimizer.decay_steps or decay_fraction");
    if (!forks.empty() && fork <= forks.back().fork_step)
      problem(fmt::format("would leave the trunk at step {}, where {} steps do already", fork, forks.back().steps));
    forks.push_back({.steps = steps,
                     .fork_step = fork,
                     .decay_steps = decay,
                     // A decay of that many steps may be longer than a piece of the trunk, which has none.
                     .trunk_overrides = {"train.optimizer.schedule=constant", "train.optimizer.decay_steps=auto",
                                         fmt::format("train.steps={}", fork)},
                     .fork_overrides = {"train.optimizer.schedule=wsd", fmt::format("train.optimizer.decay_steps={}", decay),
                                        fmt::format("train.steps={}", steps)}});
  }
  if (!problems.empty()) throw ConfigError(problems);
  return forks;
}

}  // namespace plait::study
