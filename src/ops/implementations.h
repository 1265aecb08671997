// The implementations behind the dispatchers of ops/*.h. Private to ops: everyone else calls the operation by its own header.
//
// Each has the signature and the contract of its operation. The dispatcher has already checked shapes, types and aliasing.
//   cpu   enqueues one task on the host stream. Sums have a fixed order. T = f32, f64 or bf16; bf16 is only storage, its
//         arithmetic happens in float.
//   cuda  chooses kernels, enqueues them on the stream and checks every status.
// This header is free of CUDA's own headers, so the dispatchers build with the host compiler.
#pragma once

#include "ops/adamw.h"
#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/libraries.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/op_context.h"
#include "ops/quantize.h"
#include "ops/reduce.h"
#include "ops/rope.h"

// The operations that every device implements: add an operation here.
#define PLAIT_OPS_IMPLEMENTATIONS                                     \
  decltype(ops::make_op_context) make_op_context;                     \
  decltype(ops::gelu_forward) gelu_forward;                           \
  decltype(ops::gelu_backward) gelu_backward;                         \
  decltype(ops::swiglu_forward) swiglu_forward;                       \
  decltype(ops::swiglu_backward) swiglu_backward;                     \
  decltype(ops::norm_to_clip) norm_to_clip;                           \
  decltype(ops::adamw) adamw;                                         \
  decltype(ops::attention_workspace_bytes) attention_workspace_bytes; \
  decltype(ops::attention_forward) attention_forward;                 \
  decltype(ops::attention_backward) attention_backward;               \
  decltype(ops::cross_entropy) cross_entropy;                         \
  decltype(ops::cross_entropy_statistics) cross_entropy_statistics;   \
  decltype(ops::cross_entropy_finish) cross_entropy_finish;           \
  decltype(ops::convert) convert;                                     \
  decltype(ops::add) add;                                             \
  decltype(ops::add_bias_residual) add_bias_residual;                 \
  decltype(ops::embedding_forward) embedding_forward;                 \
  decltype(ops::embedding_backward) embedding_backward;               \
  decltype(ops::linear_forward) linear_forward;                       \
  decltype(ops::linear_backward_input) linear_backward_input;         \
  decltype(ops::linear_backward_weight) linear_backward_weight;       \
  decltype(ops::norm_forward) norm_forward;                           \
  decltype(ops::norm_backward) norm_backward;                         \
  decltype(ops::qk_norm_forward) qk_norm_forward;                     \
  decltype(ops::qk_norm_backward) qk_norm_backward;                   \
  decltype(ops::find_scale) find_scale;                               \
  decltype(ops::quantize) quantize;                                   \
  decltype(ops::find_scales) find_scales;                             \
  decltype(ops::transpose) transpose;                                 \
  decltype(ops::sum_rows) sum_rows;                                   \
  decltype(ops::quantize_all) quantize_all;                           \
  decltype(ops::sum) sum;                                             \
  decltype(ops::sum_of_squares) sum_of_squares;                       \
  decltype(ops::count_ignored) count_ignored;                         \
  std::vector<LibraryVersion> library_versions();                     \
  decltype(ops::rope) rope;

namespace plait::ops::cpu {
std::size_t workspace_bytes();
PLAIT_OPS_IMPLEMENTATIONS
}  // namespace plait::ops::cpu

#if PLAIT_HAS_CUDA
namespace plait::ops::cuda {
PLAIT_OPS_IMPLEMENTATIONS
}  // namespace plait::ops::cuda
#else
namespace plait::ops {
namespace cuda = cpu;  // never called: ArgumentCheck refuses streams of GPUs
}
#endif

#undef PLAIT_OPS_IMPLEMENTATIONS
