// Attention in f32 with our own kernels, for verification: sums have a fixed order and nothing is rounded below f32.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "ops/attention.h"

namespace plait::ops::cuda {

std::size_t attention_f32_workspace_bytes(const AttentionShape& shape);
void attention_f32_forward(StreamRef stream, const AttentionForward& args);
void attention_f32_backward(StreamRef stream, const AttentionBackward& args, View workspace);

}  // namespace plait::ops::cuda
