// Seconds of one micro-batch in one block: nominal by its FLOPs and bytes (plan/block_work.h), corrected by what was measured.
//
// A pass that was measured takes what was measured; another one its nominal time × measured / nominal of the nearest that was.
#pragma once

#include "parallel/program.h"
#include "plan/block_work.h"
#include "plan/machine.h"

namespace plait::plan {

struct PassCost {
  double seconds = 0;  // without collectives
  // Collectives of the tensor group within it, as in PassWork.
  int gathers = 0, scatters = 0, all_reduces = 0;
  double collective_bytes = 0;
};

class BlockCosts {
 public:
  BlockCosts(const Machine& machine, const model::BlockSizes& sizes);  // keeps a reference to the machine

  // `kind`: forward, backward_input or backward_weight.
  PassCost cost(parallel::InstructionKind kind, int block);
  bool extrapolated() const { return extrapolated_; }  // asked for a pass that was not measured although others were

 private:
  double correction(parallel::InstructionKind kind, int block);

  const Machine& machine_;
  model::BlockSizes sizes_;
  bool extrapolated_ = false;
};

}  // namespace plait::plan
