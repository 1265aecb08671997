// What one segment keeps between its forward and its backward pass, as names, shapes and views.
#pragma once

#include <string>
#include <vector>

#include "core/view.h"
#include "model/model_shape.h"

namespace plait::model {

// Sequences per micro-batch and tokens per sequence; whether those may hold several documents, each by itself.
struct MicroBatchShape {
  std::int64_t batch = 0, sequence = 0;
  Documents documents = Documents::joined;
  std::int64_t rows() const { return batch * sequence; }
};

// What is done of a segment's pass. Tensor-parallel ranks with FP8 operands agree on a scale in the middle of it, so they do it
// in two parts.
//   first   up to the operand of its last product, and the scale of that
//   last    that product
enum class PassPart { whole, first, last };

// Where a tensor lives.
//   saved     kept from forward to backward-weight of the same micro-batch: one copy per segment and micro-batch in flight
//   forward   of no use once the segment's forward is done
//   backward  computed in backward-input and kept until backward-weight
//   scratch   both: computed in forward for the moment, and again in backward; the moment's is one copy for all segments. Of a
//             gradient: valid within one instruction only
enum class Keep { saved, forward, backward, scratch };

// How the tensor-parallel ranks share a tensor.
enum class Split {
  none,      // every rank has all of it, the same
  residual,  // part of the residual stream: rows, under sequence parallelism; else as `none`
  columns,   // a share of the columns (heads for qkv and lse, vocabulary for logits)
};

// What a tensor is for.
enum class TensorRole {
  internal,   // only its segment uses it; its values can be checked and compared with those of other layouts
  output,     // the segment's output, or the gradient of it: the neighbouring segments use it too, so it is a buffer of its own
  workspace,  // temporaries and parts of sums: its values mean nothing by themselves
};

struct TensorSpec {
  std::string name;
  Shape shape;  // on this rank
  DType dtype = DType::f32;
  Keep keep = Keep::saved;
  Split split = Split::none;
  TensorRole role = TensorRole::internal;
  std::size_t bytes() const { return static_cast<std::size_t>(shape.elements()) * size_of(dtype); }
};

// The norm in front of attention, MLP and head. `rows` = batch * sequence; `own rows` are this rank's rows of the residual
// stream, all of them without sequence parallelism. Each rank norms its own rows of `out`, [rows, hidden], and gathers the
// rest.
struct NormActivations {
  View out;
  View mean, rstd;  // [own rows]; mean of LayerNorm only
};

// Activations of a segment, apart from its norm. heads, qkv_dim, ffn, up_dim and vocab are this tensor-parallel rank's.
// `output` is the segment's output, hence the next segment's input: [own rows, hidden].
struct SegmentActivations {
  View output;
  // attention
  View projected_qkv;       // [rows, qkv_dim], before the norms of query and key heads; only with these
  View qkv;                 // [rows, qkv_dim], after them and RoPE
  View attention_out, lse;  // [rows, heads * head_dim], [batch, heads, sequence]
  // mlp
  View up;   // before the activation function, [rows, up_dim]
  View act;  // after it, [rows, ffn]; not of GELU with FP8, which is made where it is rounded
  // attention and mlp with FP8, of what the first product reads (the norm's output) and the last (attention_out, act or
  // GELU of up): the
  // scales (ops::find_scale), f32 [2, ops::scale_floats]; the operands that backward_weight reads instead, e4m3 [columns, rows]
  View scales;
  View first_operand, last_operand;
  // head
  View logits;  // [rows, padded_vocab]; their gradient after a training step's loss
  View losses;  // [rows]
};

// What the sizes of a segment's tensors depend on, beside the segment.
struct SegmentSizes {
  ModelShape shape;  // of the whole model
  TensorSplit split;
  MicroBatchShape micro_batch;
  DType compute = DType::f32;
  Recompute recompute = Recompute::none;
  bool fp8 = false;  // products of attention and MLP have FP8 operands (ops/quantize.h)
  std::int64_t own_rows() const { return micro_batch.rows() / (split.sequence_parallel ? split.size : 1); }
  // This rank's rows of the residual stream of a micro-batch, which is what a message between stages carries.
  Shape own_residual() const { return {own_rows(), shape.hidden}; }
  std::size_t own_residual_bytes() const { return static_cast<std::size_t>(own_residual().elements()) * size_of(compute); }
};

// Of one operand in one form: a multiple of 256.
std::size_t operand_bytes(const Shape& shape);
// What products with FP8 operands need beside their tensors, within one instruction: the operand that is not kept. 0 without
// them.
std::size_t operand_workspace_bytes(const SegmentSizes& sizes);

// What this rank attends to in an attention segment.
ops::AttentionShape attention_shape(const SegmentSizes& sizes, int segment);

// The members of NormActivations, none where no norm is in front. Without recomputation they are kept from forward to
// backward-weight; with it they are computed twice, and each time kept until they have been used. Backward-weight reads FP8
// operands instead of norm_out where these are kept.
std::vector<TensorSpec> norm_specs(const SegmentSizes& sizes, int segment);
// The members of SegmentActivations that segment `segment` uses, in execution order, with where they live.
std::vector<TensorSpec> activation_specs(const SegmentSizes& sizes, int segment);

// The reverse: fills them from the memory of each spec, in the same order.
NormActivations bind_norm(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory);
SegmentActivations bind_activations(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory);
// `below` with every member that `above` sets replaced by it.
SegmentActivations overlay(SegmentActivations below, const SegmentActivations& above);

// Gradients within one segment's backward. The stash is what backward_weight needs: it must stay until that has run. The
// gradient of the segment's output belongs to the residual stream: whoever computes it writes this rank's rows, and the rest is
// gathered.
struct SegmentGradients {
  View output;  // stash: of SegmentActivations::output, [rows, hidden]
  View qkv;     // stash, attention
  // stash, attention: of the norms of query and key heads, what this micro-batch and this rank's heads add, [head_dim] each
  View query_gain, key_gain;
  View up;         // stash, mlp: of SegmentActivations::up, [rows, up_dim]
  View act;        // transient, mlp with SwiGLU only: [rows, ffn]
  View attention;  // transient, attention: of SegmentActivations::attention_out
  // stash, with FP8: as those of SegmentActivations, of `output` (first) and of qkv or up (last)
  View scales;
  View first_operand, last_operand;
  // stash, with FP8: their sums over rows, what this micro-batch adds to the gradients of the biases behind them; [hidden], and
  // [qkv_dim] or [up_dim], where there are such biases
  View first_sums, last_sums;
};
// Of segment `segment`: the head has no output, the embedding nothing else.
std::vector<TensorSpec> gradient_specs(const SegmentSizes& sizes, int segment);
SegmentGradients bind_gradients(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory);

// Named views of everything set, in execution order: for finding the first tensor that is not finite.
struct NamedView {
  std::string name;
  View view;
};
std::vector<NamedView> named(const NormActivations& norm);
std::vector<NamedView> named(const SegmentActivations& activations);
std::vector<NamedView> named(const SegmentGradients& gradients);

}  // namespace plait::model
