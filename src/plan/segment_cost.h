// Seconds of one micro-batch in one segment: nominal by its FLOPs and bytes (model/segment_work.h), corrected by what was
// measured.
//
// A pass that was measured takes what was measured; another one its nominal time × measured / nominal of the nearest that was.
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

// A computation of a pass: `adds_residual` of norm, `part` of forward and backward_input.
struct PassComputation {
  parallel::InstructionKind kind = parallel::InstructionKind::forward;
  int segment = 0;
  int part = 0;
  bool adds_residual = false;
  friend auto operator<=>(const PassComputation&, const PassComputation&) = default;
};

struct PassCost {
  double seconds = 0;  // without collectives
  // An exchange was timed beside compute, and with a kernel that copies where peers push: what it takes of the device is in the
  // seconds of both. By itself its norm takes this long, nominally.
  bool beside_compute = false;
  double alone_seconds = 0;
};

// Nominal, of a rank by itself.
double seconds_of(const model::PassWork& work, const topology::DeviceProfile& profile, DType dtype);

class SegmentCosts {
 public:
  // Keeps a reference to the machine. `beside_head`: of a rank that holds the head.
  SegmentCosts(const Machine& machine, const model::SegmentSizes& sizes, bool beside_head);

  // Nothing for what takes no time of its own: rounding is part of what is measured of a norm.
  PassCost cost(const PassComputation& computation);
  bool extrapolated() const { return extrapolated_; }  // asked for a pass that was not measured although others were

 private:
  using Measured = double SegmentMeasurement::*;
  const SegmentMeasurement* nearest(int segment);  // null where nothing of its kind was measured
  // Seconds of `part` of a segment's work: nominal, times what was measured of `whole`, which has it in it, over its nominal.
  template <typename Part, typename Whole>
  double seconds(int segment, const Part& part, const Whole& whole, Measured measured);

  const Machine& machine_;
  model::SegmentSizes sizes_;
  bool beside_head_;
  bool extrapolated_ = false;
};

}  // namespace plait::plan
