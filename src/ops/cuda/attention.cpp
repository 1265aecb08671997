#include <algorithm>

#include "core/error.h"
#include "ops/cuda/attention.h"
#include "ops/cuda/op_context.h"
#include "ops/implementations.h"

namespace plait::ops::cuda {

std::size_t attention_workspace_bytes(OpContext& context, const AttentionShape& shape, DType dtype) {
  return dtype == DType::bf16 ? cuda_context(context).attention.workspace_bytes(shape) : attention_f32_workspace_bytes(shape);
}

void attention_forward(StreamRef stream, OpContext& context, const AttentionForward& args) {
  if (args.qkv.dtype == DType::bf16) {
    cuda_context(context).attention.forward(static_cast<cudaStream_t>(stream.native()), args, context.workspace());
  } else {
    attention_f32_forward(stream, args);
  }
}

void attention_backward(StreamRef stream, OpContext& context, const AttentionBackward& args) {
  if (args.qkv.dtype == DType::bf16) {
    cuda_context(context).attention.backward(static_cast<cudaStream_t>(stream.native()), args, context.workspace());
  } else {
    attention_f32_backward(stream, args, context.workspace());
  }
}

}  // namespace plait::ops::cuda
