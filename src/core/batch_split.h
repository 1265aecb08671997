// How the sequences of a step are dealt out: among the ranks along the axes that divide the batch, and on each of them into
// micro-batches. Nothing else computes how many these are.
#pragma once

#include <cstdint>

#include "core/axis.h"

namespace plait {

struct BatchSplit {
  std::int64_t global_batch = 1, micro_batch = 1;  // sequences
  std::int64_t ranks = 1;                          // along the axes that divide the batch; 0: not known yet

  // Sequences of one micro-batch of each of these ranks.
  std::int64_t round() const { return micro_batch * ranks; }
  // Whether a step is whole micro-batches of all of them. By divisions: the product of two numbers that a user typed may
  // overflow.
  bool is_whole() const { return ranks > 0 && global_batch % micro_batch == 0 && global_batch / micro_batch % ranks == 0; }
  // Of each of these ranks in a step, rounded down; 0 where their number is not known.
  std::int64_t micro_batches() const { return ranks == 0 ? 0 : global_batch / micro_batch / ranks; }
};

// `Config`, of which it reads train.global_batch and train.micro_batch.
template <typename Config>
BatchSplit batch_split(const Config& config, const AxisSizes& sizes) {
  return {config.train.global_batch, config.train.micro_batch, product(sizes, batch_axes)};
}

}  // namespace plait
