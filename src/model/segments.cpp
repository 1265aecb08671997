#include "model/segments.h"

#include "ops/quantize.h"

namespace plait::model {
namespace {

constexpr AxisSet sharing = {segment_axis};  // the ranks that share a segment

PassStep compute(Computation computation, int part = 0) { return {.computation = computation, .part = part}; }

class Lists {
 public:
  explicit Lists(const SegmentSizes& sizes) : sizes_(sizes), rows_(sizes.micro_batch.rows()) {}

  bool shared() const { return sizes_.split.size > 1; }
  bool by_rows() const { return sizes_.split.sequence_parallel && shared(); }

  PassStep collective(Operation operation, PassTensor tensor, std::int64_t elements, DType dtype) const {
    return {.collective = PassCollective{operation, tensor, sharing, elements, dtype}};
  }
  PassStep over_rows(Operation operation, PassTensor tensor) const {
    return collective(operation, tensor, rows_ * sizes_.shape.hidden, sizes_.compute);
  }
  PassStep sum(PassTensor tensor) const { return over_rows(by_rows() ? Operation::reduce_scatter : Operation::sum, tensor); }
  PassStep agree(PassTensor scale) const { return collective(Operation::max, scale, ops::scale_floats, DType::f32); }

  // Adds the steps that give every rank all rows: the tensor itself, or its rows rounded with a common scale.
  void gather(PassSteps& steps, bool operands, Computation round, PassTensor tensor, PassTensor scale,
              PassTensor values) const {
    if (!by_rows()) return;
    const bool into_free = !steps.empty() && steps.front().collective;
    if (operands) {
      steps.push_back(agree(scale));
      steps.push_back(compute(round));
      steps.push_back(collective(Operation::all_gather, values, rows_ * sizes_.shape.hidden, DType::e4m3));
    } else {
      steps.push_back(over_rows(Operation::all_gather, tensor));
    }
    steps.back().collective->into_free = into_free;
  }

 private:
  const SegmentSizes& sizes_;
  std::int64_t rows_;
};

SegmentKind kind_of(const SegmentSizes& sizes, int segment) { return sizes.shape.kind(segment); }
bool is_in_block(SegmentKind kind) { return has_norm(kind) && has_output(kind); }

void add_norm_gather(PassSteps& steps, const Lists& lists, const SegmentSizes& sizes, int segment) {
  lists.gather(steps, gathers_operands(sizes, kind_of(sizes, segment)), Computation::round_norm, PassTensor::norm,
               PassTensor::norm_scale, PassTensor::norm_values);
}

// A pass in two parts if ranks agree on the scale of an operand that is divided among them; else in one.
PassSteps in_parts(const SegmentSizes& sizes, int segment, Computation computation, PassTensor scale) {
  PassSteps steps = {compute(computation)};
  if (agrees_on_scales(sizes, segment)) {
    steps.push_back(Lists(sizes).agree(scale));
    steps.push_back(compute(computation, 1));
  }
  return steps;
}

// The collectives between equal computations of a pass.
std::vector<Between> between_parts(const PassSteps& steps) {
  std::vector<Between> list;
  for (std::size_t n = 1; n + 1 < steps.size(); ++n) {
    const std::optional<PassCollective>& c = steps[n].collective;
    if (c && !steps[n + 1].collective && steps[n + 1].computation == steps.front().computation)
      list.push_back({c->operation, c->axes});
  }
  return list;
}

}  // namespace

bool agrees_on_scales(const SegmentSizes& sizes, int segment) {
  return sizes.fp8 && sizes.split.size > 1 && is_in_block(kind_of(sizes, segment));
}

std::vector<Segment> segments(const SegmentSizes& sizes) {
  std::vector<Segment> list;
  const Lists lists(sizes);
  for (int segment = 0; segment < sizes.shape.segments(); ++segment) {
    const SegmentKind kind = kind_of(sizes, segment);
    list.push_back({.kind = kind,
                    .partial = lists.shared(),
                    .by_rows = lists.by_rows(),
                    .quantized = sizes.fp8 && is_in_block(kind),
                    .gathers_operands = gathers_operands(sizes, kind),
                    .recomputes_norm = sizes.recompute != Recompute::none && is_in_block(kind),
                    .in_forward = between_parts(forward_steps(sizes, segment)),
                    .in_backward = between_parts(backward_steps(sizes, segment))});
  }
  return list;
}

PassSteps steps_before(const SegmentSizes& sizes, int segment, bool follows, bool precedes) {
  const Lists lists(sizes);
  const bool sums = follows && lists.shared();
  PassSteps steps;
  if (sums) steps.push_back(lists.sum(PassTensor::product));
  if (precedes) {
    steps.push_back(compute(Computation::norm));
    steps.back().adds_residual = sums;
    add_norm_gather(steps, lists, sizes, segment);
  } else if (sums) {
    steps.push_back(compute(Computation::add_residual));
  }
  return steps;
}

PassSteps forward_steps(const SegmentSizes& sizes, int segment) {
  PassSteps steps = in_parts(sizes, segment, Computation::forward, PassTensor::activation_scale);
  if (has_output(kind_of(sizes, segment))) return steps;
  const Lists lists(sizes);
  if (lists.shared()) {
    const DType type = sizes.compute == DType::f64 ? DType::f64 : DType::f32;
    steps.push_back(
        lists.collective(Operation::all_gather, PassTensor::statistics, sizes.split.size * sizes.micro_batch.rows() * 3, type));
  }
  steps.push_back(compute(Computation::loss));
  return steps;
}

PassSteps recompute_steps(const SegmentSizes& sizes, int segment) {
  PassSteps steps;
  if (sizes.recompute == Recompute::none || !is_in_block(kind_of(sizes, segment))) return steps;
  steps.push_back(compute(Computation::norm));
  add_norm_gather(steps, Lists(sizes), sizes, segment);
  return steps;
}

PassSteps received_gradient_steps(const SegmentSizes& sizes) {
  const Lists lists(sizes);
  if (!lists.by_rows()) return {};
  return {lists.over_rows(Operation::all_gather, PassTensor::input_gradient)};
}

PassSteps backward_steps(const SegmentSizes& sizes, int segment) {
  if (!has_norm(kind_of(sizes, segment))) return {};
  return in_parts(sizes, segment, Computation::backward_input, PassTensor::gradient_scale);
}

PassSteps steps_behind_backward(const SegmentSizes& sizes, int segment, bool sent) {
  const Lists lists(sizes);
  PassSteps steps;
  if (lists.shared()) steps.push_back(lists.sum(PassTensor::norm_gradient));
  steps.push_back(compute(Computation::norm_backward));
  if (!sent) {
    lists.gather(steps, gathers_operands(sizes, kind_of(sizes, segment - 1)), Computation::round_gradient,
                 PassTensor::input_gradient, PassTensor::input_scale, PassTensor::input_values);
  }
  return steps;
}

}  // namespace plait::model
