// The tensors of one segment's forward and backward pass: names, shapes and views.
#pragma once

#include <string>
#include <vector>

#include "core/view.h"
#include "model/model_shape.h"

namespace plait::model {

// Sequences per micro-batch, tokens per sequence, and `documents`: a sequence's documents may be joined, or each stand alone.
struct MicroBatchShape {
  std::int64_t batch = 0, sequence = 0;
  Documents documents = Documents::joined;
  std::int64_t rows() const { return batch * sequence; }
};

// The lifetime of a tensor.
//   saved     kept from forward to backward-weight of the same micro-batch: one copy per segment and micro-batch in flight
//   forward   used only within the segment's forward
//   backward  computed in backward-input and kept until backward-weight
//   scratch   computed in forward, dropped, and computed again in backward; forward uses one copy for all segments. For a
//             gradient: valid within one instruction only
enum class Keep { saved, forward, backward, scratch };

// How tensor-parallel ranks share a tensor.
enum class Split {
  none,      // every rank has an equal copy of it
  residual,  // part of the residual stream: split by rows under sequence parallelism; else as `none`
  columns,   // a share of the columns (heads for qkv and lse, vocabulary for logits)
};

// The use of a tensor.
enum class TensorRole {
  internal,       // only its segment uses it; its values can be checked and compared with those of other layouts
  output,         // the segment's output, or its gradient: neighbouring segments use it too, so it is a buffer of its own
  beside_output,  // written with the output or its gradient, and kept beside that; else as `workspace`
  workspace,      // temporaries and partial sums: values without a meaning of their own
};

struct TensorSpec {
  std::string name;
  Shape shape;  // on this rank
  DType dtype = DType::f32;
  Keep keep = Keep::saved;
  Split split = Split::none;
  TensorRole role = TensorRole::internal;
  bool gathered = false;  // each rank writes its own rows and receives the rest
  std::size_t bytes() const { return static_cast<std::size_t>(shape.elements()) * size_of(dtype); }
};

// The norm in front of attention, MLP and head. `rows` = batch * sequence; `own rows` are this rank's rows of the residual
// stream, all of them without sequence parallelism. Each rank norms its own rows of `out`, [rows, hidden], and gathers the
// rest. If FP8 operands are gathered instead (gathers_operands()), `out` is [own rows, hidden]; each rank rounds it to its rows
// of `values` and gathers the other rows of `values`.
struct NormActivations {
  View out;
  View mean, rstd;  // [own rows]; mean of LayerNorm only
  View scale;       // with FP8, in front of attention and MLP: the scale of all rows (ops::find_scale), f32 [ops::scale_floats]
  View values;      // e4m3 [rows, hidden]
};

// Activations of a segment, apart from its norm. heads, qkv_dim, ffn, up_dim and vocab are this tensor-parallel rank's.
// `output` is the segment's output, hence the next segment's input: [own rows, hidden].
struct SegmentActivations {
  View output;
  // attention
  View projected_qkv;       // [rows, qkv_dim], before the norms of query and key heads; only if there are such norms
  View qkv;                 // [rows, qkv_dim], after those norms and RoPE
  View attention_out, lse;  // [rows, heads * head_dim], [batch, heads, sequence]
  // mlp
  View up;   // before the activation function, [rows, up_dim]
  View act;  // after it, [rows, ffn]; absent for GELU with FP8, which is computed where it is rounded
  // Attention and MLP with FP8. `scale`: of the last product's input (attention_out, act or GELU of up), f32
  // [ops::scale_floats]. The operands: the inputs of the first product (the norm's output) and of the last one in the form for
  // backward_weight, e4m3 [columns, rows]. backward_weight itself transposes `values` that were gathered, so there is no
  // first_operand then.
  View scale;
  View first_operand, last_operand;
  // head
  View logits;  // [rows, padded_vocab]; their gradient after a training step's loss
  View losses;  // [rows]
};

// The sizes on which a segment's tensors depend.
struct SegmentSizes {
  ModelShape shape;  // of the whole model
  TensorSplit split;
  MicroBatchShape micro_batch;
  DType compute = DType::f32;
  Recompute recompute = Recompute::none;
  bool fp8 = false;  // products of attention and MLP have FP8 operands (ops/quantize.h)
  std::int64_t own_rows() const { return micro_batch.rows() / (split.sequence_parallel ? split.size : 1); }
  // This rank's rows of `tensor`, which has either all rows or only these.
  View own_rows(const View& tensor) const {
    return tensor.shape[0] == own_rows() ? tensor : tensor.rows(split.rank * own_rows(), own_rows());
  }
  // The shape of this rank's rows of the residual stream of a micro-batch, which a message between stages carries.
  Shape own_residual() const { return {own_rows(), shape.hidden}; }
  std::size_t own_residual_bytes() const { return static_cast<std::size_t>(own_residual().elements()) * size_of(compute); }
};

// True if the ranks gather FP8 operands, each rounding its own rows, in front of the first product of a segment's pass: the
// norm's output in forward, the gradient of the segment's output in backward (unless another stage sends that).
bool gathers_operands(const SegmentSizes& sizes, SegmentKind kind);

// Bytes of one operand in one form: a multiple of 256.
std::size_t operand_bytes(const Shape& shape);
// Workspace bytes of products with FP8 operands, within one instruction: for the operand that is not kept. 0 without FP8.
std::size_t operand_workspace_bytes(const SegmentSizes& sizes);

// The shape of this rank's attention in an attention segment.
ops::AttentionShape attention_shape(const SegmentSizes& sizes, int segment);

// The members of NormActivations; none for a segment without a norm. Without recomputation they are kept from forward to
// backward-weight; with it they are computed twice, and each time kept until their last use. If FP8 operands are kept,
// backward-weight reads those instead of norm_out.
std::vector<TensorSpec> norm_specs(const SegmentSizes& sizes, int segment);
// The members of SegmentActivations that segment `segment` uses, in execution order, with their lifetimes.
std::vector<TensorSpec> activation_specs(const SegmentSizes& sizes, int segment);

// The inverse: binds each spec's memory to its member; `memory` is in the order of `specs`.
NormActivations bind_norm(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory);
SegmentActivations bind_activations(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory);
// Returns `below`, with every member that is set in `above` replaced by it.
SegmentActivations overlay(SegmentActivations below, const SegmentActivations& above);

// Gradients within one segment's backward. A stash member must stay until backward_weight has run; transient ones may go
// earlier. The gradient of the segment's output belongs to the residual stream: the instruction that computes it writes this
// rank's rows, and the rest is gathered, as FP8 operands if gathers_operands() says so.
struct SegmentGradients {
  // stash: of SegmentActivations::output, [rows, hidden], or [own rows, hidden] if `output_values` are gathered
  View output;
  // stash, attention and mlp with FP8: the scale of all rows of `output`, found by the norm that writes it or, if it is
  // received, by backward_input, f32 [ops::scale_floats]; and the operand, e4m3 [rows, hidden], if that is gathered
  View output_scale, output_values;
  View qkv;  // stash, attention
  // stash, attention: this micro-batch's and this rank's gradients of the norms of query and key heads, [head_dim] each
  View query_gain, key_gain;
  View up;         // stash, mlp: of SegmentActivations::up, [rows, up_dim]
  View act;        // transient, mlp with SwiGLU only: [rows, ffn]
  View attention;  // transient, attention: of SegmentActivations::attention_out
  // stash, with FP8: as in SegmentActivations, for qkv or up (scale, last) and for `output` (first)
  View scale;
  View first_operand, last_operand;
  // stash, with FP8: this micro-batch's gradients of the biases, as sums over rows: of `output`, [hidden], without sequence
  // parallelism only, and of qkv or up, [qkv_dim] or [up_dim]; only where there are such biases
  View first_sums, last_sums;
};
// The members of segment `segment`: the head has none, the embedding only `output`. `received`: another stage sends the
// gradient of its output.
std::vector<TensorSpec> gradient_specs(const SegmentSizes& sizes, int segment, bool received = false);
SegmentGradients bind_gradients(const std::vector<TensorSpec>& specs, const std::vector<void*>& memory);
SegmentGradients overlay(SegmentGradients below, const SegmentGradients& above);

// Named views of all members that are set, in execution order: for finding the first tensor that is not finite.
struct NamedView {
  std::string name;
  View view;
};
std::vector<NamedView> named(const NormActivations& norm);
std::vector<NamedView> named(const SegmentActivations& activations);
std::vector<NamedView> named(const SegmentGradients& gradients);

}  // namespace plait::model
