#include "plan/pass_seconds.h"

#include <algorithm>

#include "model/activations.h"

namespace plait::plan {

using model::SegmentKind;
using parallel::InstructionKind;

SegmentParts kinds_in(const model::ModelShape& shape, const parallel::SegmentRange& range) {
  const int first = std::max(range.first, 1), end = std::max(first, std::min(range.end, shape.head_segment()));
  SegmentParts held{};
  held[index_of(SegmentKind::embedding)] = range.first == 0 ? 1 : 0;
  held[index_of(SegmentKind::head)] = range.end == shape.segments() ? 1 : 0;
  held[index_of(SegmentKind::attention)] = end / 2 - first / 2;
  held[index_of(SegmentKind::mlp)] = end - first - (end / 2 - first / 2);
  return held;
}

PassSeconds pass_seconds(const Machine& machine, const model::SegmentSizes& sizes, const AxisSizes& mesh,
                         const AxisSpeeds& speeds, const parallel::CollectiveChoice& exchanges, bool beside_head) {
  SegmentCosts costs(machine, sizes, beside_head);
  const CommunicationCosts communication(machine);
  const auto moving = [&](const model::PassSteps& steps) {
    double total = 0;
    for (const model::PassStep& step : steps) {
      if (!step.collective) continue;
      const AxisSet axes = step.collective->axes;
      const TensorCollective c =
          tensor_collective(step.collective->operation, step.collective->elements, step.collective->dtype);
      total += communication.seconds(c.kind, static_cast<int>(product(mesh, axes)), c.bytes, slowest_of(speeds, mesh, axes),
                                     axes == parallel::groups::tensor.axes ? exchanges : parallel::CollectiveChoice{});
    }
    return total;
  };
  const auto computing = [&](const model::PassSteps& steps, int segment) {
    double total = 0;
    for (const model::PassStep& step : steps) {
      if (step.collective) continue;
      total += costs.cost({parallel::kind_of(step.computation), segment, step.part, step.adds_residual}).seconds;
    }
    return total;
  };
  const auto seconds = [&](const model::PassSteps& steps, int segment) { return computing(steps, segment) + moving(steps); };
  const auto forward = [&](int segment) {
    double total = seconds(model::forward_steps(sizes, segment), segment);
    if (has_norm(sizes.shape.kind(segment))) total += seconds(model::steps_before(sizes, segment, true, true), segment);
    return total;
  };
  const auto backward = [&](int segment) {
    if (!has_norm(sizes.shape.kind(segment))) return 0.0;
    return seconds(model::backward_steps(sizes, segment), segment) +
           seconds(model::steps_behind_backward(sizes, segment, false), segment) +
           seconds(model::recompute_steps(sizes, segment), segment);
  };
  const auto weight = [&](int segment) {
    return costs.cost({.kind = InstructionKind::backward_weight, .segment = segment}).seconds;
  };
  return {by_kind(sizes.shape, forward), by_kind(sizes.shape, backward), by_kind(sizes.shape, weight),
          by_kind(sizes.shape, [&](int segment) {
            if (!has_norm(sizes.shape.kind(segment))) return 0.0;
            return moving(model::steps_behind_backward(sizes, segment, false));
          })};
}

SegmentParts activation_bytes(const model::SegmentSizes& sizes) {
  const auto saved = [](const model::TensorSpec& s) { return s.keep == model::Keep::saved; };
  return by_kind(sizes.shape, [&](int segment) {
    const bool keeps_norm = sizes.recompute == model::Recompute::none || !has_output(sizes.shape.kind(segment));
    return specs_bytes(activation_specs(sizes, segment), saved) +
           specs_bytes(norm_specs(sizes, segment), [&](const model::TensorSpec& s) { return keeps_norm && saved(s); });
  });
}

}  // namespace plait::plan
