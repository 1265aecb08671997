// What a block, and what a head, adds to a micro-batch.
//
// A GPU at its power limit runs everything at the clock that the mix of it allows. A head's large products take most power, so
// that blocks without a head beside them are faster than with one, and a head costs what it slows the blocks down by, too.
// Timed in two models of different numbers of blocks, blocks × block + head is right for both, and to first order for the
// stages of a pipeline, whose mixes lie between and beside them.
#pragma once

#include <cstdint>

namespace plait::bench {

// Of one model with one head.
struct MixTimes {
  std::int64_t blocks = 0;
  double block = 0, head = 0;  // seconds of one, as timed among the others
  double micro_batch() const { return static_cast<double>(blocks) * block + head; }
};

// What times of `many` have to be multiplied with to be what each adds; at most by a quarter, as more would be noise.
struct AddedTime {
  double of_block = 1, of_head = 1;
};
AddedTime added_time(const MixTimes& few, const MixTimes& many);  // InternalError if `many` has no more blocks

}  // namespace plait::bench
