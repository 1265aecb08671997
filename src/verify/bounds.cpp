#include "verify/bounds.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace plait::verify {
namespace {

constexpr double confidence = 2;  // `c`

double unit_roundoff(DType type) {
  switch (type) {
    case DType::bf16: return std::ldexp(1.0, -8);
    case DType::f32: return std::ldexp(1.0, -24);
    case DType::f64: return std::ldexp(1.0, -53);
    case DType::i32:
    case DType::u8:
    case DType::f16:
    case DType::e4m3: break;
  }
  throw InternalError("unit_roundoff: not a type to compute in");
}

constexpr double fp8_roundoff = 1.0 / 16;
constexpr double parting = 256, seldom = 1e-3;

// Number of elements of FP8 operands in one step: the inputs of attention's and the MLP's products in forward and the gradients
// that they read in backward, for every token, and the weights.
std::int64_t operands_of(const parallel::RankPlan& plan) {
  if (!plan.sizes.fp8) return 0;
  const model::ModelShape& s = plan.sizes.shape;
  const std::int64_t forward = 2 * s.hidden + s.attention_dim() + s.ffn, backward = 2 * s.hidden + s.qkv_dim() + s.up_dim();
  const std::int64_t weights = s.hidden * (s.qkv_dim() + s.attention_dim() + s.up_dim() + s.ffn);
  return s.layers * (plan.tokens_per_step() * (forward + backward) + weights);
}

double root_of(std::int64_t count) { return std::sqrt(static_cast<double>(count)); }

}  // namespace

OptimizerConfig verify_optimizer(const Config& config) {
  OptimizerConfig optimizer = config.train.optimizer;
  optimizer.lr = config.verify.lr;
  optimizer.epsilon = config.verify.epsilon;
  optimizer.schedule = Decay::constant;
  optimizer.warmup = 0;
  return optimizer;
}

VerifyBounds verify_bounds(const parallel::RankPlan& plan, const Config& config) {
  const model::ModelShape& shape = plan.sizes.shape;
  VerifyBounds bounds{.stored = unit_roundoff(plan.sizes.compute),
                      .summed = unit_roundoff(plan.scalar_type()),
                      .gradients = unit_roundoff(plan.gradient_type),
                      .master = unit_roundoff(plan.master_type),
                      .moments = plan.moment_type == plan.master_type ? 0 : 2 * unit_roundoff(plan.moment_type),
                      .longest_sum = std::max({shape.hidden, shape.ffn, shape.attention_dim(), plan.sequence_length}),
                      .segments = shape.segments(),
                      .tokens = plan.tokens_per_step(),
                      .micro_batches = static_cast<std::int64_t>(plan.micro_batches) * plan.layout.size(batch_axes),
                      .operands = config.verify.steps * operands_of(plan),
                      .optimizer = verify_optimizer(config)};
  bounds.rates.assign(static_cast<std::size_t>(config.verify.steps), config.verify.lr);
  return bounds;
}

double VerifyBounds::tensor(double drift) const {
  const double product = stored + summed * root_of(longest_sum) + drift;
  const double bound = confidence * product * root_of(4 * (segments + 2));
  if (parting * bound * static_cast<double>(operands) < seldom) return bound;
  return bound + confidence * fp8_roundoff * root_of(4 * (segments + 2));
}

double VerifyBounds::gradient(double drift) const {
  return tensor(drift) + confidence * (gradients * root_of(micro_batches) + summed * root_of(tokens));
}

double VerifyBounds::norm(const StepFigures& step) const {
  if (step.loss_tokens == 0) return sum_of_micro_batches();
  return gradient(step.drift) / root_of(step.loss_tokens) + sum_of_micro_batches();
}

double VerifyBounds::loss(const StepFigures& step) const {
  if (step.loss_tokens == 0) return sum_of_micro_batches();
  return tensor(step.drift) * step.logits / root_of(step.loss_tokens) + sum_of_micro_batches();
}

double VerifyBounds::sum_of_micro_batches() const { return confidence * unit_roundoff(DType::f32) * root_of(micro_batches); }

double VerifyBounds::movement(std::int64_t step, double largest_moment) const {
  const double root = std::sqrt(largest_moment / (1 - std::pow(optimizer.beta2, static_cast<double>(step))));
  return rates[static_cast<std::size_t>(step - 1)] * root / (root + optimizer.epsilon);
}

MomentsApart VerifyBounds::moments_apart(double first, double second, const MomentsApart& before) const {
  return {optimizer.beta1 * before.first + moments * std::abs(first), optimizer.beta2 * before.second + moments * second};
}

double VerifyBounds::rounded_moments(std::int64_t step, double first, double second, const MomentsApart& before) const {
  if (before.first == 0 && before.second == 0) return 0;
  const auto t = static_cast<double>(step);
  const double correction1 = 1 - std::pow(optimizer.beta1, t), correction2 = 1 - std::pow(optimizer.beta2, t);
  const double first_apart = optimizer.beta1 * before.first / correction1,
               second_apart = optimizer.beta2 * before.second / correction2;
  const double largest_first = (1 + moments) * std::abs(first) / correction1;
  const double root = std::sqrt(std::max(0.0, (1 - moments) * second / correction2 - second_apart));
  const double widest = std::sqrt(second_apart), root_apart = root > 0 ? std::min(second_apart / (2 * root), widest) : widest;
  return (first_apart + largest_first * root_apart / (root + optimizer.epsilon)) / (root + optimizer.epsilon);
}

double VerifyBounds::update(std::int64_t step, double drift, double moment, double largest_moment, double rounded) const {
  const double correction = 1 - std::pow(optimizer.beta2, static_cast<double>(step));  // v̂ = v / correction
  const double root = std::sqrt(moment / correction), largest_root = std::sqrt(largest_moment / correction);
  const double share = gradient(drift) * largest_root / (root + optimizer.epsilon);
  return 2 * rates[static_cast<std::size_t>(step - 1)] * std::min(1.0, share + rounded / 2);
}

nlohmann::ordered_json to_json(const VerifyBounds& b) {
  return {
      {"parameter",
       {{"rule",
         "of each element: sum over steps of 2 lr min(1, gradient * max(root) / (root + epsilon) + moments / 2) + rounding * "
         "max|parameter|, where root is that of AdamW's second moment, its bias corrected, and moments what neighbours in "
         "the type of moments make of the update; 0 where that is the parameter's own"},
        {"lr", b.rates},
        {"epsilon", b.optimizer.epsilon},
        {"rounding", b.parameter_rounding(std::ssize(b.rates), 1)},
        {"weight_rounding", b.weight_rounding(1)}}},
      {"from",
       {{"unit_roundoff", {{"stored", b.stored}, {"summed", b.summed}, {"gradients", b.gradients}, {"master", b.master}}},
        {"moments", b.moments},
        {"longest_sum", b.longest_sum},
        {"segments", b.segments},
        {"tokens", b.tokens},
        {"micro_batches", b.micro_batches},
        {"fp8_operands", b.operands}}}};
}

double weak_from(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::loss: return 0.1;
    case ErrorKind::norm: return 0.05;
    case ErrorKind::gradient: return 0.2;
    case ErrorKind::parameter:
    case ErrorKind::weight: return 0.5;
  }
  throw InternalError("weak_from: unknown kind");
}

std::vector<WeakBound> weak_bounds(const VerifyBounds& bounds, const std::vector<StepFigures>& steps) {
  std::vector<WeakBound> weak;
  const auto add = [&](ErrorKind kind, std::size_t index, double bound) {
    if (bound <= weak_from(kind)) return false;
    weak.push_back({kind, static_cast<std::int64_t>(index) + 1, bound, weak_from(kind)});
    return true;
  };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (add(ErrorKind::loss, i, bounds.loss(steps[i]))) break;
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (add(ErrorKind::norm, i, bounds.norm(steps[i]))) break;
  }
  // Gradients are compared in the first step that has any, and the last such step made the last update.
  const auto counts = [](const StepFigures& step) { return step.loss_tokens > 0; };
  const auto first = std::ranges::find_if(steps, counts);
  if (first != steps.end()) {
    add(ErrorKind::gradient, static_cast<std::size_t>(first - steps.begin()), bounds.gradient(first->drift));
    const auto last = std::find_if(steps.rbegin(), steps.rend(), counts);
    const double apart = 2 * bounds.gradient(last->drift), rounded = last->rounding;
    if (add(ErrorKind::parameter, static_cast<std::size_t>(steps.rend() - last) - 1, apart + rounded))
      weak.back().by_rounding = rounded > apart;
  }
  return weak;
}

std::string WeakBound::text() const {
  const std::string of = kind == ErrorKind::parameter ? " of what updates move parameters by" : "";
  return fmt::format("the bound of {} after step {} is {:.2g}{}, above {}: faults may hide beneath it", to_string(kind), step,
                     bound, of, most);
}

void to_json(nlohmann::ordered_json& json, const WeakBound& weak) {
  json = {{"kind", to_string(weak.kind)}, {"step", weak.step}, {"bound", weak.bound}, {"weak_from", weak.most}};
}

}  // namespace plait::verify
