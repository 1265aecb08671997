// The bounds on a layout's difference from the serial run, and their derivation. All errors are relative: max |a - b| / max |b|
// over a tensor (but see gradient_scale() in verify/parameter_errors.cpp).
//
// A layout computes the same sums as the serial run, in another order and in other parts. With u the unit roundoff, a sum of K
// terms then comes out differently by about u √K of its size: rounding errors are as good as random, so they add up like a
// random walk (Higham and Mary 2019, "A new approach to probabilistic rounding error analysis"). Two types take part: `stored`,
// the type of tensors and of the partial sums that ranks exchange (bf16, f32, f64), and `summed`, in which products are
// accumulated (f32 or f64).
//
//   one product      e = u(stored) + u(summed) √K, K the longest sum in a segment: hidden, ffn, heads × head_dim or sequence
//   through a model  every segment independently adds the errors of two products forward and of as many backward to those
//                    of its input, the ends of the model twice as many:
//                    tensor = c e √(4 (segments + 2))
//   gradients        are sums over micro-batches and data-parallel ranks, in the type of gradients, of products that are sums
//                    over tokens: gradient = tensor + c (u(gradients) √micro-batches + u(summed) √tokens)
//   gradient norm    is a number that all counted tokens contribute to, with errors as independent as these are, summed over
//                    micro-batches in f32 at best: norm = gradient / √counted + c u(f32) √micro-batches
//   loss             likewise, from the logits: loss = tensor (logits / loss) / √counted + c u(f32) √micro-batches, where
//                    `logits` stands for the largest ones, 4 √hidden rms(gain) rms(table): an output of the final norm, whose
//                    elements are of the size of its gain, times rows of a table that is still much as it was drawn
// In a step without a counted target, loss and norm are 0 in any order, and only the second part of their bounds remains.
//
// FP8 operands (precision.matmul) are rounded once more, by 2^-4 at most. A layout rounds them with the serial run's scales, so
// two runs differ there only if an operand lies so close to the middle between two numbers of e4m3 that an error of size
// `tensor` moves it across. Among normally distributed elements, including those near 0 with their finer steps, about 256
// tensor do. As long as that is less than one in a thousand runs, for all operands of all steps together, the bounds are as
// without FP8: in fp64. Otherwise a few operands are a step off, the next segments spread that, and
//   one product      e = u(stored) + u(summed) √K + 2^-4
// which says little. So FP8 layouts are verified with precision.compute: fp64.
//
// c = 2: both runs are random walks away from the exact result; and the largest of many errors is as many standard deviations
// out as the largest element that it is divided by.
//
// Parameters. AdamW moves an element by lr m̂ / (√v̂ + ε), which hardly depends on how large its gradient is: if a gradient is
// no larger than its error, its sign is not certain and two correct runs may part by 2 lr in every step. So each element has
// its own bound. An error δ of its gradient changes m̂ / √v̂ by at most 2 δ / √v̂, and never by more than 2:
//   parameter = Σ over steps of 2 lr min(1, gradient · max √v̂ / (√v̂ + ε)) + u(master) (steps + 1) max |parameter|
// with √v̂ of the serial run after each step and max over the tensor. An element whose gradients are as large as any other's in
// its tensor has to agree to 2 Σ lr · gradient; the key biases of attention, whose true gradients are 0, hardly need to agree.
// The weights that segments compute with are parameters rounded, to neighbours at worst:
//   weight = parameter + 2 u(stored) max |w|
//
// Moments in bf16 (precision.moments). Every layout rounds an element by the same random number (ops/moment_rounding.h), and
// that keeps order: two runs whose moments are about the same round them to the same number of bf16 or to neighbours.
// Neighbours differ by at most 2^-7 of the number, and β of a difference remains after the next update. So after each step,
// with m and v as the serial run keeps them,
//   apart(m) <- β1 apart(m) + 2^-7 |m|      apart(v) <- β2 apart(v) + 2^-7 v
// An update computes with moments that differ by β1 apart(m) and β2 apart(v) of the steps before, so it moves the element by at
// most lr times
//   moments = (Δm̂ + |m̂| Δ√v̂ / (√v̂ + ε)) / (√v̂ + ε),  Δ√v̂ = min(Δv̂ / 2√v̂, √Δv̂)
// more or less (with m̂ as large and √v̂ as small as the rounding of the kept moments allows). Half of it goes under the min,
// in addition to the gradients' part; the first update has none of it.
//
// Later steps start from weights that already differ. Weights that differ by d of their size affect a product like rounding it
// to d: from the second step on, e + d takes the place of e, with
//   d = √(Σ b²) / √(Σ w²), over all elements of matrices that ever had a gradient, b the bound of the element w so far
// d is small if lr is small against weights and ε is large against the errors of gradients; otherwise √v̂ + ε of some elements
// is no larger than those errors, and d grows in every step. So verification steps use verify.lr and verify.epsilon instead of
// the configuration's training values. If bounds become weak all the same, weak_bounds() reports it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/config.h"
#include "parallel/rank_plan.h"
#include "verify/findings.h"

namespace plait::verify {

// The optimizer of these steps: train.optimizer except for the learning rate, which is constant, and epsilon.
OptimizerConfig verify_optimizer(const Config& config);

// The difference that rounding may cause between two runs' moments of an element.
struct MomentsApart {
  double first = 0, second = 0;
};

// The serial run's results in a step.
struct StepFigures {
  double loss = 0, norm = 0;
  std::int64_t loss_tokens = 0;  // runtime::StepResult::loss_tokens
  double drift = 0, logits = 0;  // inputs of the step's bounds
  // For the tensor where it is largest: the rounding part of its bound so far, divided by the distance that updates moved its
  // elements with the largest gradients.
  double rounding = 0;
};

struct VerifyBounds {
  // The inputs of the bounds.
  double stored = 0, summed = 0, gradients = 0, master = 0;  // unit roundoffs
  double moments = 0;  // spacing of moments with their own rounding, relative to a number; else 0
  std::int64_t longest_sum = 0, segments = 0, tokens = 0, micro_batches = 0;
  std::int64_t operands = 0;  // elements that are rounded to FP8 in all steps; 0 without
  OptimizerConfig optimizer;
  std::vector<double> rates = {};  // lr of each step

  // For a step that starts from weights that differ by `drift`, d above; 0 in the first step. `logits`: logits / loss.
  double tensor(double drift) const;
  double gradient(double drift) const;
  double norm(const StepFigures& step) const;
  double loss(const StepFigures& step) const;
  // Step `step`'s (from 1) contribution to the bound of an element of a parameter; `moment`: AdamW's second moment of the
  // element after the step, `largest_moment`: the largest of the tensor; `rounded`: rounded_moments() of the element.
  double update(std::int64_t step, double drift, double moment, double largest_moment, double rounded = 0) const;
  // `moments` above: the part of lr by which the step may move an element more or less; `before`: of its moments after the step
  // before; the step leaves the moments as `first` and `second`.
  double rounded_moments(std::int64_t step, double first, double second, const MomentsApart& before) const;
  MomentsApart moments_apart(double first, double second, const MomentsApart& before) const;  // after the step
  // The distance that the step moves the elements with the largest gradients of a tensor, if these keep their sign.
  double movement(std::int64_t step, double largest_moment) const;
  // The rounding part of a parameter's bound after step `step`; `magnitude`: the tensor's largest element.
  double parameter_rounding(std::int64_t step, double magnitude) const {
    return master * static_cast<double>(step + 1) * magnitude;
  }
  double weight_rounding(double magnitude) const { return 2 * stored * magnitude; }
  double sum_of_micro_batches() const;  // for quantities with one value per step
};

// `plan`: of the serial run, or any other of the same model.
VerifyBounds verify_bounds(const parallel::RankPlan& plan, const Config& config);

nlohmann::ordered_json to_json(const VerifyBounds& bounds);  // the bounds' inputs, and the rule for parameters

// Weak bounds: those that have grown so far that a fault could hide beneath them. An error within such a bound says little, so
// `plait verify` names them, and fails with --strict.
//
// The limits follow from faults: each fault in tests/verify/mutation_test.cpp makes some error larger than the limit here, so
// bounds at these limits would catch every one of them, except faults of FP8 operands, whose errors show only against the
// bounds of fp64. The smallest errors of faults that show nowhere else were 0.5 (loss), 0.11 (norm), 0.42 (gradients) and 1.6
// (weights); the limits are half of that and less.

struct WeakBound {
  ErrorKind kind = ErrorKind::loss;
  std::int64_t step = 0;
  double bound = 0, most = 0;  // `most`: weak_from(kind)
  bool by_rounding = false;    // of parameters: updates are no larger than the rounding of parameters

  std::string text() const;
};

// Bounds above this are weak: for relative errors; for parameters in units of the distance that updates move the elements with
// the largest gradients, so that a lost or doubled update is an error of 1. These elements have the narrowest bounds of their
// tensor, 2 lr gradient(drift) per step plus the rounding of parameters, and a fault in a tensor shows where its bound is
// narrowest.
double weak_from(ErrorKind kind);

// For each kind the first step with a weak bound. `steps`: all of the serial run. Weights count as parameters.
std::vector<WeakBound> weak_bounds(const VerifyBounds& bounds, const std::vector<StepFigures>& steps);

void to_json(nlohmann::ordered_json& json, const WeakBound& weak);

}  // namespace plait::verify
