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

PassSeconds pass_seconds(const Machine& machine, const model::SegmentSizes& sizes, const RingSpeed& tensor,
                         const parallel::CollectiveChoice& exchanges, bool beside_head) {
  SegmentCosts costs(machine, sizes, beside_head);
  const CommunicationCosts communication(machine);
  const bool several = sizes.split.size > 1, split = sizes.split.sequence_parallel;
  const auto moving = [&](const PassCost& cost) {
    double total = 0;
    for (const TensorCollective& c : cost.collectives) {
      if (several) total += communication.seconds(c.kind, sizes.split.size, c.bytes, tensor, exchanges);
    }
    return total;
  };
  const auto seconds = [&](InstructionKind kind, int segment, const parallel::Exchange& exchange = {}) {
    const PassCost cost = costs.cost(kind, segment, exchange);
    return cost.seconds + moving(cost);
  };
  const parallel::Exchange whole{.sum = several, .norm = true, .gather = split}, again{.norm = true, .gather = split};
  // FP8 operands have one scale on all ranks.
  const auto scales_of = [&](SegmentKind kind) { return several && sizes.fp8 && has_norm(kind) && has_output(kind); };
  const auto forward = [&](int segment) {
    const SegmentKind kind = sizes.shape.kind(segment);
    double total = seconds(InstructionKind::forward, segment);
    if (scales_of(kind)) total += seconds(InstructionKind::exchange_forward_scale, segment);
    if (has_norm(kind)) total += seconds(InstructionKind::exchange_forward, segment, whole);
    if (!has_output(kind)) total += seconds(InstructionKind::loss, segment) + seconds(InstructionKind::exchange_loss, segment);
    return total;
  };
  const auto backward = [&](int segment) {
    const SegmentKind kind = sizes.shape.kind(segment);
    if (!has_norm(kind)) return 0.0;
    double total =
        seconds(InstructionKind::backward_input, segment) + seconds(InstructionKind::exchange_backward, segment, whole);
    if (scales_of(kind)) total += seconds(InstructionKind::exchange_backward_scale, segment);
    if (sizes.recompute != model::Recompute::none && has_output(kind))
      total += seconds(InstructionKind::exchange_recompute, segment, again);
    return total;
  };
  return {by_kind(sizes.shape, forward), by_kind(sizes.shape, backward),
          by_kind(sizes.shape, [&](int segment) { return seconds(InstructionKind::backward_weight, segment); }),
          by_kind(sizes.shape, [&](int segment) {
            if (!has_norm(sizes.shape.kind(segment))) return 0.0;
            return moving(costs.cost(InstructionKind::exchange_backward, segment, whole));
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
