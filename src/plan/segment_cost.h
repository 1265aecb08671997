// Seconds of one micro-batch in one segment: the nominal time by FLOPs and bytes (model/segment_work.h), corrected by
// measurements.
//
// A measured pass takes its measured time. Any other takes its nominal time × measured / nominal of the nearest measured pass.
#pragma once

#include "model/segment_work.h"
#include "parallel/program/program.h"
#include "plan/communication_cost.h"
#include "plan/machine.h"

namespace plait::plan {

// A collective over one tensor.
struct TensorCollective {
  Collective kind = Collective::all_reduce;
  double bytes = 0;  // of the whole tensor
  friend bool operator==(const TensorCollective&, const TensorCollective&) = default;
};

TensorCollective tensor_collective(Operation operation, std::int64_t elements, DType dtype);

// One computation of a pass. `adds_residual` applies to norm, `part` to forward and backward_input.
struct PassComputation {
  parallel::InstructionKind kind = parallel::InstructionKind::forward;
  int segment = 0;
  int part = 0;
  bool adds_residual = false;
  friend auto operator<=>(const PassComputation&, const PassComputation&) = default;
};

struct PassCost {
  double seconds = 0;  // without collectives
  // True if the exchange was timed beside compute, with a kernel that copies in place of the peers' pushes: `seconds`, and
  // those of the compute beside it, include the device time that it takes. `alone_seconds` is the nominal time of its norm by
  // itself.
  bool beside_compute = false;
  double alone_seconds = 0;
};

// Nominal seconds on an undisturbed rank.
double seconds_of(const model::PassWork& work, const topology::DeviceProfile& profile, DType dtype);

class SegmentCosts {
 public:
  // Keeps a reference to the machine. `beside_head`: the rank holds the head.
  SegmentCosts(const Machine& machine, const model::SegmentSizes& sizes, bool beside_head);

  // 0 for computations without a time of their own: rounding is part of a norm's measured time.
  PassCost cost(const PassComputation& computation);
  bool extrapolated() const { return extrapolated_; }  // cost() was asked for a pass that was not measured although others were

 private:
  using Measured = double SegmentMeasurement::*;
  const SegmentMeasurement* nearest(int segment);  // null if no segment of its kind was measured
  // Seconds of `part` of a segment's work: its nominal time × `measured` / nominal time of `whole`, the measured work, which
  // contains the part.
  template <typename Part, typename Whole>
  double seconds(int segment, const Part& part, const Whole& whole, Measured measured);

  const Machine& machine_;
  model::SegmentSizes sizes_;
  bool beside_head_;
  bool extrapolated_ = false;
};

}  // namespace plait::plan
