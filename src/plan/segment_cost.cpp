#include "plan/segment_cost.h"

#include <cmath>
#include <limits>

#include "core/error.h"

namespace plait::plan {
namespace {

using parallel::InstructionKind;

template <typename Passes>
const auto& pass_of(const Passes& passes, InstructionKind kind) {
  switch (kind) {
    case InstructionKind::forward: return passes.forward;
    case InstructionKind::backward_input: return passes.backward_input;
    case InstructionKind::backward_weight: return passes.backward_weight;
    default: throw InternalError("SegmentCosts: a pass is forward or a part of backward");
  }
}

double ratio(double a, double b) { return std::abs(std::log2(a / b)); }

}  // namespace

SegmentCosts::SegmentCosts(const Machine& machine, const model::SegmentSizes& sizes) : machine_(machine), sizes_(sizes) {}

PassCost SegmentCosts::cost(InstructionKind kind, int segment) {
  const PassWork work = pass_of(segment_work(sizes_, segment), kind);
  return {.seconds = seconds_of(work, machine_.profile, sizes_.compute) * correction(kind, segment),
          .gathers = work.gathers,
          .scatters = work.scatters,
          .all_reduces = work.all_reduces,
          .collective_bytes = work.collective_bytes};
}

double SegmentCosts::correction(InstructionKind kind, int segment) {
  if (!machine_.calibration) return 1;
  const SegmentMeasurement* nearest = nullptr;
  double nearest_distance = std::numeric_limits<double>::infinity();
  for (const SegmentMeasurement& m : machine_.calibration->segments) {
    if (m.kind != sizes_.shape.kind(segment)) continue;
    // Another split changes the shapes of the products, another micro-batch only their rows.
    const double distance = 4 * ratio(m.tensor, sizes_.split.size) +
                            ratio(static_cast<double>(m.micro_batch), static_cast<double>(sizes_.micro_batch.batch)) +
                            (m.recompute == sizes_.recompute ? 0 : 0.5);
    if (distance < nearest_distance) nearest = &m, nearest_distance = distance;
  }
  if (!nearest) return 1;
  if (nearest_distance > 0) extrapolated_ = true;
  model::SegmentSizes sizes = sizes_;
  sizes.split.size = nearest->tensor;
  sizes.split.sequence_parallel = sizes.split.sequence_parallel && nearest->tensor > 1;
  sizes.micro_batch.batch = nearest->micro_batch;
  sizes.recompute = nearest->recompute;
  const double nominal = seconds_of(pass_of(segment_work(sizes, segment), kind), machine_.profile, sizes.compute);
  return nominal > 0 ? pass_of(*nearest, kind) / nominal : 1;
}

}  // namespace plait::plan
