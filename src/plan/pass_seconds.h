// Seconds and kept bytes of one micro-batch's passes, for each kind of segment and so for a stage. All segments of a kind cost
// the same.
#pragma once

#include <array>

#include "parallel/stages.h"
#include "plan/communication_cost.h"
#include "plan/segment_cost.h"

namespace plait::plan {

// One number for each kind of segment.
using SegmentParts = std::array<double, names<model::SegmentKind>.size()>;

constexpr std::size_t index_of(model::SegmentKind kind) { return static_cast<std::size_t>(kind); }

// Calls `of` for one segment of each kind that the model has.
template <typename Of>
SegmentParts by_kind(const model::ModelShape& shape, const Of& of) {
  SegmentParts parts{};
  for (const int segment : {0, 1, 2, shape.head_segment()}) {
    if (segment < shape.segments()) parts[index_of(shape.kind(segment))] = of(segment);
  }
  return parts;
}

// The number of segments of each kind in a stage. Attention segments have odd numbers.
SegmentParts kinds_in(const model::ModelShape& shape, const parallel::SegmentRange& range);

// The bytes of the tensors for which `counts` is true.
template <typename Counts>
double specs_bytes(const std::vector<model::TensorSpec>& specs, const Counts& counts) {
  double bytes = 0;
  for (const model::TensorSpec& spec : specs) bytes += counts(spec) ? static_cast<double>(spec.bytes()) : 0;
  return bytes;
}

// Seconds of a pass, with the norm in front of the segment and the exchanges between ranks, one after the other.
struct PassSeconds {
  SegmentParts forward, backward_input, backward_weight;
  SegmentParts exchanged;  // the exchanges of backward_input: a weight pass may hide them
};
// `beside_head`: the rank holds the head. `exchanges`: how its tensor group communicates; other groups use the library.
PassSeconds pass_seconds(const Machine& machine, const model::SegmentSizes& sizes, const AxisSizes& mesh,
                         const AxisSpeeds& speeds, const parallel::CollectiveChoice& exchanges, bool beside_head);

// The bytes kept from forward to backward.
SegmentParts activation_bytes(const model::SegmentSizes& sizes);

}  // namespace plait::plan
