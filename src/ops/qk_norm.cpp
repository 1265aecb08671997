#include "ops/qk_norm.h"

#include "ops/attention_check.h"
#include "ops/implementations.h"

namespace plait::ops {
namespace {

template <typename Args>
void check_qk_norm(const ArgumentCheck& check, const Args& args) {
  check_attention_shape(check, args.shape);
  check.compute_tensor("x", args.x, 2);
  check.tensor("x", args.x, args.x.dtype, packed_qkv_shape(args.shape));
  check.tensor("query_gain", args.query_gain, args.x.dtype, {args.shape.head_dim});
  check.tensor("key_gain", args.key_gain, args.x.dtype, {args.shape.head_dim});
  check.that(args.epsilon >= 0, "epsilon", "not negative", std::to_string(args.epsilon));
}

}  // namespace

void qk_norm_forward(StreamRef stream, const QkNormForward& args) {
  const ArgumentCheck check("qk_norm_forward", stream);
  check_qk_norm(check, args);
  check.tensor("y", args.y, args.x.dtype, args.x.shape);
  check.distinct("y", args.y, "x", args.x);
  if constexpr (PLAIT_HAS_CUDA) {
    if (check.on_cuda()) return cuda::qk_norm_forward(stream, args);
  }
  cpu::qk_norm_forward(stream, args);
}

void qk_norm_backward(StreamRef stream, OpContext& context, const QkNormBackward& args) {
  const ArgumentCheck check("qk_norm_backward", stream, context);
  check_qk_norm(check, args);
  check.tensor("dqkv", args.dqkv, args.x.dtype, args.x.shape);
  check.distinct("dqkv", args.dqkv, "x", args.x);
  check.gradient("dquery_gain", args.dquery_gain, args.x.dtype, {args.shape.head_dim});
  check.tensor("dkey_gain", args.dkey_gain, args.dquery_gain.dtype, {args.shape.head_dim});
  if constexpr (PLAIT_HAS_CUDA) {
    if (check.on_cuda()) return cuda::qk_norm_backward(stream, context, args);
  }
  cpu::qk_norm_backward(stream, context, args);
}

}  // namespace plait::ops
