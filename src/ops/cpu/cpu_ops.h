// The operations on the host: same signatures and contracts as in ops/*.h, arguments already validated by the dispatcher.
//
// Each enqueues one task on the host stream. Sums have a fixed order. T = f32, f64 or bf16; bf16 is only storage, its
// arithmetic happens in float.
#pragma once

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

namespace plait::ops::cpu {

std::size_t workspace_bytes();
std::unique_ptr<OpContext> make_op_context(Device device, View workspace, const OpContextOptions& options);

void gelu_forward(StreamRef stream, View x, View y);
void gelu_backward(StreamRef stream, View x, View dy, View dx);
void swiglu_forward(StreamRef stream, View gate_up, View y);
void swiglu_backward(StreamRef stream, View gate_up, View dy, View dgate_up);

void norm_to_clip(StreamRef stream, View sum_of_squares, View loss, float clip, View optimizer_state);
void adamw(StreamRef stream, const AdamW& args);

std::size_t attention_workspace_bytes(OpContext& context, const AttentionShape& shape, DType dtype);
void attention_forward(StreamRef stream, OpContext& context, const AttentionForward& args);
void attention_backward(StreamRef stream, OpContext& context, const AttentionBackward& args);

void cross_entropy(StreamRef stream, const CrossEntropy& args);
void cross_entropy_statistics(StreamRef stream, const CrossEntropyStatistics& args);
void cross_entropy_finish(StreamRef stream, const CrossEntropyFinish& args);

void convert(StreamRef stream, View from, View to);
void add(StreamRef stream, View x, View y);
void add_bias_residual(StreamRef stream, const AddBiasResidual& args);

void embedding_forward(StreamRef stream, const EmbeddingForward& args);
void embedding_backward(StreamRef stream, OpContext& context, const EmbeddingBackward& args);

void linear_forward(StreamRef stream, OpContext& context, const LinearForward& args);
void linear_backward_input(StreamRef stream, OpContext& context, const LinearBackwardInput& args);
void linear_backward_weight(StreamRef stream, OpContext& context, const LinearBackwardWeight& args);

void norm_forward(StreamRef stream, const NormForward& args);
void norm_backward(StreamRef stream, OpContext& context, const NormBackward& args);

void sum(StreamRef stream, OpContext& context, View values, View out, float scale, bool accumulate);
void sum_of_squares(StreamRef stream, OpContext& context, View values, View out, bool accumulate);

void rope(StreamRef stream, const Rope& args);

}  // namespace plait::ops::cpu
