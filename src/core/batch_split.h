// How a step's sequences are divided: among the ranks along the axes that divide the batch, and on each rank into
// micro-batches. Only this code computes these numbers.
#pragma once

#include <cstdint>

#include "core/axis.h"

namespace plait {

struct BatchSplit {
  std::int64_t global_batch = 1, micro_batch = 1;  // sequences
  std::int64_t ranks = 1;                          // along the axes that divide the batch; 0: not known yet

  // Sequences of one micro-batch on every one of these ranks.
  std::int64_t round() const { return micro_batch * ranks; }
  // True if a step is whole micro-batches on all of them. Computed by divisions, since a product of two numbers that a user
  // typed may overflow.
  bool is_whole() const { return ranks > 0 && global_batch % micro_batch == 0 && global_batch / micro_batch % ranks == 0; }
  // Micro-batches of each of these ranks in a step, rounded down; 0 if the number of ranks is unknown.
  std::int64_t micro_batches() const { return ranks == 0 ? 0 : global_batch / micro_batch / ranks; }
};

// `Config` has train.global_batch and train.micro_batch.
template <typename Config>
BatchSplit batch_split(const Config& config, const AxisSizes& sizes) {
  return {config.train.global_batch, config.train.micro_batch, product(sizes, batch_axes)};
}

}  // namespace plait
