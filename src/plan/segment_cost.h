// Seconds of one micro-batch in one segment: nominal by its FLOPs and bytes (plan/segment_work.h), corrected by what was
// measured.
//
// A pass that was measured takes what was measured; another one its nominal time × measured / nominal of the nearest that was.
#pragma once

#include "parallel/program.h"
#include "plan/machine.h"
#include "plan/segment_work.h"

namespace plait::plan {

struct PassCost {
  double seconds = 0;  // without collectives
  // Collectives of the tensor group within it, as in PassWork.
  int gathers = 0, scatters = 0, all_reduces = 0;
  double collective_bytes = 0;
};

class SegmentCosts {
 public:
  SegmentCosts(const Machine& machine, const model::SegmentSizes& sizes);  // keeps a reference to the machine

  // `kind`: forward, backward_input or backward_weight.
  PassCost cost(parallel::InstructionKind kind, int segment);
  bool extrapolated() const { return extrapolated_; }  // asked for a pass that was not measured although others were

 private:
  double correction(parallel::InstructionKind kind, int segment);

  const Machine& machine_;
  model::SegmentSizes sizes_;
  bool extrapolated_ = false;
};

}  // namespace plait::plan
