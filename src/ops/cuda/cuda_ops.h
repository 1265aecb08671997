// The CUDA implementations behind the dispatchers of ops/*.h: same signatures, same contracts.
//
// The dispatcher has already checked shapes, dtypes and aliasing; these functions choose kernels, enqueue on the stream and
// check every status. This header is free of CUDA's own headers, so the dispatchers build with the host compiler.
#pragma once

#include <cstddef>
#include <memory>

#include "core/device.h"
#include "core/stream.h"
#include "core/view.h"
#include "ops/activation.h"
#include "ops/adamw.h"
#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/op_context.h"
#include "ops/reduce.h"
#include "ops/rope.h"

namespace plait::ops::cuda {

std::unique_ptr<OpContext> make_op_context(Device device, View workspace, const OpContextOptions& options);

void linear_forward(StreamRef stream, OpContext& context, const LinearForward& args);
void linear_backward_input(StreamRef stream, OpContext& context, const LinearBackwardInput& args);
void linear_backward_weight(StreamRef stream, OpContext& context, const LinearBackwardWeight& args);

std::size_t attention_workspace_bytes(OpContext& context, const AttentionShape& shape, DType dtype);
void attention_forward(StreamRef stream, OpContext& context, const AttentionForward& args);
void attention_backward(StreamRef stream, OpContext& context, const AttentionBackward& args);

void norm_forward(StreamRef stream, const NormForward& args);
void norm_backward(StreamRef stream, OpContext& context, const NormBackward& args);

void rope(StreamRef stream, const Rope& args);

void gelu_forward(StreamRef stream, View x, View y);
void gelu_backward(StreamRef stream, View x, View dy, View dx);
void swiglu_forward(StreamRef stream, View gate_up, View y);
void swiglu_backward(StreamRef stream, View gate_up, View dy, View dgate_up);

void embedding_forward(StreamRef stream, const EmbeddingForward& args);
void embedding_backward(StreamRef stream, OpContext& context, const EmbeddingBackward& args);

void cross_entropy(StreamRef stream, const CrossEntropy& args);
void cross_entropy_statistics(StreamRef stream, const CrossEntropyStatistics& args);
void cross_entropy_finish(StreamRef stream, const CrossEntropyFinish& args);

void sum(StreamRef stream, OpContext& context, View values, View out, float scale, bool accumulate);
void sum_of_squares(StreamRef stream, OpContext& context, View values, View out, bool accumulate);

void norm_to_clip(StreamRef stream, View sum_of_squares, View loss, float clip, View optimizer_state);
void adamw(StreamRef stream, const AdamW& args);

void convert(StreamRef stream, View from, View to);
void add(StreamRef stream, View x, View y);
void add_bias_residual(StreamRef stream, const AddBiasResidual& args);

}  // namespace plait::ops::cuda
