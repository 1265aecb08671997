// What the passes of one micro-batch take and keep in each kind of segment, and so in a stage: the same for all segments of a
// kind.
#pragma once

#include <array>

#include "parallel/stages.h"
#include "plan/communication_cost.h"
#include "plan/segment_cost.h"

namespace plait::plan {

// A figure for each kind of segment.
using SegmentParts = std::array<double, names<model::SegmentKind>.size()>;

constexpr std::size_t index_of(model::SegmentKind kind) { return static_cast<std::size_t>(kind); }

// Of one segment of each kind that the model has.
template <typename Of>
SegmentParts by_kind(const model::ModelShape& shape, const Of& of) {
  SegmentParts parts{};
  for (const int segment : {0, 1, 2, shape.head_segment()}) {
    if (segment < shape.segments()) parts[index_of(shape.kind(segment))] = of(segment);
  }
  return parts;
}

// How many of each kind a stage holds. Attention has the odd numbers.
SegmentParts kinds_in(const model::ModelShape& shape, const parallel::SegmentRange& range);

// Bytes of the tensors that `counts`.
template <typename Counts>
double specs_bytes(const std::vector<model::TensorSpec>& specs, const Counts& counts) {
  double bytes = 0;
  for (const model::TensorSpec& spec : specs) bytes += counts(spec) ? static_cast<double>(spec.bytes()) : 0;
  return bytes;
}

// Seconds with the norm in front of the segment, and what ranks exchange, one after the other.
struct PassSeconds {
  SegmentParts forward, backward_input, backward_weight;
  SegmentParts exchanged;  // what ranks exchange in backward_input: the part that a weight part may hide
};
// `beside_head`: of a rank that holds the head. `exchanges`: of its tensor group; others go by the library.
PassSeconds pass_seconds(const Machine& machine, const model::SegmentSizes& sizes, const AxisSizes& mesh,
                         const AxisSpeeds& speeds, const parallel::CollectiveChoice& exchanges, bool beside_head);

// Bytes that are kept from forward to backward.
SegmentParts activation_bytes(const model::SegmentSizes& sizes);

}  // namespace plait::plan
