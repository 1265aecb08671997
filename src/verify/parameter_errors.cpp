#include "verify/parameter_errors.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "verify/findings.h"

namespace plait::verify {
namespace {

using parallel::FlatLayout;

// Elements [first, first + count) of this rank's part of a parameter.
struct ParameterRange {
  const model::Parameter& parameter;
  std::int64_t first = 0, count = 0;

  std::vector<double> of(const ReferenceStep& serial, const std::string& name) const {
    std::vector<double> values(static_cast<std::size_t>(count));
    serial.read(name, model::whole_runs(parameter.part, first, count), first, values);
    return values;
  }
};

double rounded_to(DType type, double value) {
  if (type == DType::f64) return value;
  const auto single = static_cast<float>(value);
  return static_cast<double>(type == DType::bf16 ? static_cast<float>(BFloat16(single)) : single);
}

// The scale for errors of a gradient. The terms of a gain of query or key heads cancel, down to nothing if a token sees only
// itself, and leave rounding errors of the size of the terms: these are not small compared to the block's other gradients.
double gradient_scale(const ReferenceStep& serial, const std::string& parameter) {
  const double largest = serial.largest(reference_gradient(parameter));
  for (const std::string_view gain : {"query_norm.weight", "key_norm.weight"}) {
    if (!parameter.ends_with(gain)) continue;
    const std::string block = parameter.substr(0, parameter.size() - gain.size());
    return std::max(largest, serial.largest(reference_gradient(block + "qkv.weight")) / 256);
  }
  return largest;
}

// `type`: of the found values; `rounding`: the part of each element's bound beyond its updates.
ParameterError updated_error(const ParameterRange& part, std::size_t index, const std::vector<double>& found,
                             const ReferenceStep& serial, DType type, double rounding) {
  const std::string name = reference_parameter(part.parameter.name);
  const std::vector<double> expected = part.of(serial, name), bounds = part.of(serial, reference_bound(part.parameter.name));
  const double magnitude = serial.largest(name), scale = magnitude > 0 ? magnitude : 1;
  ParameterError worst{index, 0, 0, 1};
  for (std::size_t i = 0; i < found.size(); ++i) {
    Difference difference;
    difference.add(found[i], rounded_to(type, expected[i]));
    const double error = difference.relative(scale), bound = (bounds[i] + rounding) / scale;
    worst.largest = std::max(worst.largest, error);
    if (error / bound > worst.error / worst.bound) worst.error = error, worst.bound = bound;
  }
  return worst;
}

}  // namespace

std::vector<ParameterError> gradient_errors(runtime::Interpreter& interpreter, const ReferenceStep& serial,
                                            const VerifyBounds& bounds) {
  const parallel::RankPlan& plan = interpreter.plan();
  std::vector<ParameterError> errors;
  for (const FlatLayout::StatePiece& piece : plan.flat.state_pieces()) {
    const ParameterRange part{plan.parameters[piece.parameter], piece.parameter_first, piece.count};
    const std::string name = reference_gradient(part.parameter.name);
    const std::vector<double> expected = part.of(serial, name);
    const std::vector<double> found =
        interpreter.synchronize_read(interpreter.kept_gradients().rows(piece.gradient_first, piece.count));
    Difference difference;
    for (std::size_t i = 0; i < found.size(); ++i) difference.add(found[i], expected[i]);
    const double error = difference.relative(gradient_scale(serial, part.parameter.name));
    errors.push_back({piece.parameter, error, error, bounds.gradient(serial.drift())});
  }
  return errors;
}

std::vector<ParameterError> parameter_errors(runtime::Interpreter& interpreter, const ReferenceStep& serial,
                                             const VerifyBounds& bounds) {
  const parallel::RankPlan& plan = interpreter.plan();
  std::vector<ParameterError> errors;
  for (const FlatLayout::StatePiece& piece : plan.flat.state_pieces()) {
    const ParameterRange part{plan.parameters[piece.parameter], piece.parameter_first, piece.count};
    const std::vector<double> found = interpreter.synchronize_read(interpreter.master().rows(piece.state_first, piece.count));
    const double magnitude = serial.largest(reference_parameter(part.parameter.name));
    errors.push_back(updated_error(part, piece.parameter, found, serial, plan.master_type,
                                   bounds.parameter_rounding(serial.step(), magnitude)));
  }
  return errors;
}

std::vector<ParameterError> weight_errors(runtime::Interpreter& interpreter, const ReferenceStep& serial,
                                          const VerifyBounds& bounds) {
  const parallel::RankPlan& plan = interpreter.plan();
  std::vector<ParameterError> errors;
  for (std::size_t p = 0; p < plan.parameters.size(); ++p) {
    const ParameterRange part{plan.parameters[p], 0, plan.parameters[p].stored};
    if (part.count == 0) continue;  // only padding of the vocabulary
    const std::vector<double> found =
        interpreter.synchronize_read(interpreter.weights().rows(plan.flat.parameter(p).first, part.count));
    const double magnitude = serial.largest(reference_parameter(part.parameter.name));
    errors.push_back(updated_error(part, p, found, serial, plan.sizes.compute,
                                   bounds.parameter_rounding(serial.step(), magnitude) + bounds.weight_rounding(magnitude)));
  }
  return errors;
}

}  // namespace plait::verify
