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
  internal,  // only its segment uses it; its values can be checked and compared with those of other layouts
  output,    // the segment's output, or the gradient of it: the neighbouring segments use it too, so it is a buffer of its own
  beside_output,  // found by who writes the output, or the gradient of it, and kept beside that; else as `workspace`
  workspace,      // temporaries and parts of sums: its values mean nothing by themselves
};

struct TensorSpec {
  std::string name;
  Shape shape;  // on this rank
  DType dtype = DType::f32;
  Keep keep = Keep::saved;
  Split split = Split::none;
  TensorRole role = TensorRole::internal;
  bool gathered = false;  // each rank writes its own rows of it, and receives the rest
  std::size_t bytes() const { return static_cast<std::size_t>(shape.elements()) * size_of(dtype); }
};

// The norm in front of attention, MLP and head. `rows` = batch * sequence; `own rows` are this rank's rows of the residual
// stream, all of them without sequence parallelism. Each rank norms its own rows of `out`, [rows, hidden], and gathers the
// rest; or, where FP8 operands are gathered (gathers_operands()), `out` is [own rows, hidden], and it rounds these to its rows
// of `values` and gathers the rest of that.
struct NormActivations {
  View out;
  View mean, rstd;  // [own rows]; mean of LayerNorm only
  View scale;       // with FP8, in front of attention and MLP: of all rows (ops::find_scale), f32 [ops::scale_floats]
  View values;      // e4m3 [rows, hidden]
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
  // attention and mlp with FP8: the scale of what the last product reads (attention_out, act or GELU of up), f32
  // [ops::scale_floats]; that and what the first reads (the norm's output) as backward_weight reads it, e4m3 [columns, rows].
  // Of what was gathered it turns `values` itself.
  View scale;
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
  // Those of a tensor that has all rows, or these alone.
  View own_rows(const View& tensor) const {
    return tensor.shape[0] == own_rows() ? tensor : tensor.rows(split.rank * own_rows(), own_rows());
  }
  // This rank's rows of the residual stream of a micro-batch, which is what a message between stages carries.
  Shape own_residual() const { return {own_rows(), shape.hidden}; }
  std::size_t own_residual_bytes() const { return static_cast<std::size_t>(own_residual().elements()) * size_of(compute); }
};

// Whether what is whole on every rank before the first product of a segment's passes is gathered as FP8 operands, each rank
// rounding its own rows: in forward the norm's output, in backward the gradient of the segment's output, unless that comes from
// another stage.
bool gathers_operands(const SegmentSizes& sizes, SegmentKind kind);

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
// gathered, as FP8 operands where gathers_operands() says so.
struct SegmentGradients {
  View
      output;  // stash: of SegmentActivations::output, [rows, hidden], or [own rows, hidden] where `output_values` are gathered
  // stash, attention and mlp with FP8: the scale of all its rows, found by the norm that writes it, or where it is received by
  // backward_input, f32 [ops::scale_floats]; the operand, e4m3 [rows, hidden], where that is gathered
  View output_scale, output_values;
  View qkv;  // stash, attention
  // stash, attention: of the norms of query and key heads, what this micro-batch and this rank's heads add, [head_dim] each
  View query_gain, key_gain;
  View up;         // stash, mlp: of SegmentActivations::up, [rows, up_dim]
  View act;        // transient, mlp with SwiGLU only: [rows, ffn]
  View attention;  // transient, attention: of SegmentActivations::attention_out
  // stash, with FP8: as those of SegmentActivations, of qkv or up (scale, last) and of `output` (first)
  View scale;
  View first_operand, last_operand;
  // stash, with FP8: their sums over rows, what this micro-batch adds to the gradients of the biases behind them; [hidden]
  // without sequence parallelism, and [qkv_dim] or [up_dim], where there are such biases
  View first_sums, last_sums;
};
// Of segment `segment`: the head has no output, the embedding nothing else. `received`: the gradient of its output comes from
// another stage.
std::vector<TensorSpec> gradient_specs(const SegmentSizes& sizes, int segment, bool received = false);
SegmentGradients bind_gradients(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory);
SegmentGradients overlay(SegmentGradients below, const SegmentGradients& above);

// Named views of everything set, in execution order: for finding the first tensor that is not finite.
struct NamedView {
  std::string name;
  View view;
};
std::vector<NamedView> named(const NormActivations& norm);
std::vector<NamedView> named(const SegmentActivations& activations);
std::vector<NamedView> named(const SegmentGradients& gradients);

}  // namespace plait::model
