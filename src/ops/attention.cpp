#include "ops/attention.h"

#include "ops/argument_check.h"
#include "ops/implementations.h"

namespace plait::ops {

void check_attention_shape(const ArgumentCheck& check, const AttentionShape& s) {
  const auto text = [&] {
    return "batch " + std::to_string(s.batch) + ", sequence " + std::to_string(s.sequence) + ", heads " +
           std::to_string(s.heads) + ", kv_heads " + std::to_string(s.kv_heads) + ", head_dim " + std::to_string(s.head_dim);
  };
  const bool positive = s.batch > 0 && s.sequence > 0 && s.heads > 0 && s.kv_heads > 0 && s.head_dim > 0;
  if (!positive) check.that(false, "shape", "positive in every member", text());
  if (s.heads % s.kv_heads != 0) check.that(false, "shape", "of heads divisible by kv_heads", text());
  if (s.window < 0) check.that(false, "shape", "of a window that is not negative", std::to_string(s.window));
}

void check_starts(const ArgumentCheck& check, const AttentionShape& s, const View& starts) {
  if (s.documents == Documents::separate) {
    check.tensor("starts", starts, DType::i32, {s.batch * s.sequence});
  } else if (starts) {
    check.that(false, "starts", "empty where documents are joined", describe(starts));
  }
}

Shape packed_qkv_shape(const AttentionShape& s) { return {s.batch * s.sequence, (s.heads + 2 * s.kv_heads) * s.head_dim}; }

std::size_t attention_workspace_bytes(OpContext& context, const AttentionShape& shape, DType dtype) {
  return context.device().is_cuda() ? cuda::attention_workspace_bytes(context, shape, dtype)
                                    : cpu::attention_workspace_bytes(context, shape, dtype);
}

namespace {

// Checks the arguments that both directions have.
template <typename Args>
void check_attention(const ArgumentCheck& check, const Args& args) {
  const AttentionShape& s = args.shape;
  check_attention_shape(check, s);
  check.compute_tensor("qkv", args.qkv, 2);
  const DType dtype = args.qkv.dtype;
  check.tensor("qkv", args.qkv, dtype, packed_qkv_shape(s));
  check_starts(check, s, args.starts);
  check.tensor("out", args.out, dtype, {s.batch * s.sequence, s.heads * s.head_dim});
  check.tensor("lse", args.lse, statistics_type(dtype), {s.batch, s.heads, s.sequence});
}

}  // namespace

void attention_forward(StreamRef stream, OpContext& context, const AttentionForward& args) {
  const ArgumentCheck check("attention_forward", stream, context);
  check_attention(check, args);
  check.distinct("out", args.out, "qkv", args.qkv);
  return check.on_cuda() ? cuda::attention_forward(stream, context, args) : cpu::attention_forward(stream, context, args);
}

void attention_backward(StreamRef stream, OpContext& context, const AttentionBackward& args) {
  const ArgumentCheck check("attention_backward", stream, context);
  check_attention(check, args);
  check.tensor("dout", args.dout, args.qkv.dtype, args.out.shape);
  check.tensor("dqkv", args.dqkv, args.qkv.dtype, args.qkv.shape);
  check.distinct("dqkv", args.dqkv, "dout", args.dout);
  check.distinct("dqkv", args.dqkv, "qkv", args.qkv);
  check.distinct("dqkv", args.dqkv, "out", args.out);
  return check.on_cuda() ? cuda::attention_backward(stream, context, args) : cpu::attention_backward(stream, context, args);
}

}  // namespace plait::ops
