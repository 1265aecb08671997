// Softmax cross-entropy that turns logits into their gradient in place, so there is never a second logits buffer.
#pragma once

#include "core/stream.h"
#include "core/view.h"

namespace plait::ops {

// logits[rows, padded_vocab] of type T; targets[rows] i32, in [0, vocab) or -1 (ignored: loss 0, gradient 0).
// losses[rows] (f32; f64 for f64) = -log softmax(logits[:, :vocab])[target].
// write_gradient: logits become (softmax - onehot) * scale, columns >= vocab become 0. Otherwise logits are left as they are.
struct CrossEntropy {
  View logits, targets;
  View losses;
  std::int64_t vocab = 0;
  float scale = 1.0f;
  bool write_gradient = true;
};
void cross_entropy(StreamRef stream, const CrossEntropy& args);

// Cross-entropy for a vocabulary split over tensor-parallel ranks, each holding the logits of its own tokens only (Shoeybi et
// al. 2019, section 3): every rank computes the statistics of its columns, the ranks gather all statistics, every rank
// finishes. Column c is token first_token + c. vocab is the size of the whole vocabulary minus first_token; columns >= vocab
// are padding, so vocab <= 0 means that all columns are padding. A target in another rank's columns is not an error.

// statistics[rows, 3] (f32; f64 for f64): the largest logit m (-inf if there is none), Σ exp(logit - m), and the target's logit
// if its column is here, else 0.
struct CrossEntropyStatistics {
  View logits, targets;
  View statistics;
  std::int64_t vocab = 0;
  std::int64_t first_token = 0;
};
void cross_entropy_statistics(StreamRef stream, const CrossEntropyStatistics& args);

// Computes, from the statistics of all ranks, [ranks, rows, 3], the losses (all ranks get the same bits) and this rank's
// columns of the gradient, as cross_entropy does; combined in rank order.
struct CrossEntropyFinish {
  View logits, targets, statistics;
  View losses;
  std::int64_t vocab = 0;
  std::int64_t first_token = 0;
  float scale = 1.0f;
  bool write_gradient = true;
};
void cross_entropy_finish(StreamRef stream, const CrossEntropyFinish& args);

}  // namespace plait::ops
