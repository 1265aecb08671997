// Softmax cross-entropy that turns logits into their gradient in place: there is never a second logits buffer.
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

}  // namespace plait::ops
