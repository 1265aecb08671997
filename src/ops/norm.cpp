#include "ops/norm.h"

#include "ops/argument_check.h"
#include "ops/implementations.h"

namespace plait::ops {
namespace {

void check_count(const ArgumentCheck& check, const char* name, const std::vector<View>& addends) {
  check.that(!addends.empty() && std::ssize(addends) <= most_norm_addends, name,
             ("1 to " + std::to_string(most_norm_addends) + " tensors").c_str(), std::to_string(addends.size()));
}

}  // namespace

void norm_forward(StreamRef stream, OpContext& context, const NormForward& args) {
  const ArgumentCheck check("norm_forward", stream, context);
  check_count(check, "x", args.x);
  check.compute_tensor("x", args.x.front(), 2);
  const DType dtype = args.x.front().dtype;
  const std::int64_t rows = args.x.front().shape[0], dim = args.x.front().shape[1];
  for (const View& addend : args.x) check.tensor("x", addend, dtype, {rows, dim});
  check.optional_tensor("bias", args.bias, dtype, {dim});
  check.optional_tensor("residual", args.residual, dtype, {rows, dim});
  if (args.x.size() > 1 || args.bias) check.given("residual", args.residual);
  check.tensor("gamma", args.gamma, dtype, {dim});
  check.tensor("y", args.y, dtype, {rows, dim});
  check.tensor("rstd", args.rstd, statistics_type(dtype), {rows});
  if (args.kind == NormKind::layer_norm) {
    check.optional_tensor("beta", args.beta, dtype, {dim});
    check.tensor("mean", args.mean, statistics_type(dtype), {rows});
  } else {
    check.absent("beta", args.beta, "for RMSNorm");
    check.absent("mean", args.mean, "for RMSNorm");
  }
  check.scale_of("y", args.y, args.scale);
  check.that(args.epsilon >= 0, "epsilon", "not negative", std::to_string(args.epsilon));
  return check.on_cuda() ? cuda::norm_forward(stream, context, args) : cpu::norm_forward(stream, context, args);
}

std::size_t norm_workspace_bytes(std::int64_t dim) {
  constexpr std::size_t parts = 1024;  // as many blocks as a GPU runs at a time, and each keeps two rows of partial sums
  return parts * 2 * sizeof(float) * static_cast<std::size_t>(dim);
}

void norm_backward(StreamRef stream, OpContext& context, const NormBackward& args) {
  const ArgumentCheck check("norm_backward", stream, context);
  check.compute_tensor("x", args.x, 2);
  const DType dtype = args.x.dtype;
  const std::int64_t rows = args.x.shape[0], dim = args.x.shape[1];
  check.tensor("gamma", args.gamma, dtype, {dim});
  check.tensor("rstd", args.rstd, statistics_type(dtype), {rows});
  check_count(check, "dy", args.dy);
  check.optional_tensor("dresidual", args.dresidual, dtype, {rows, dim});
  check.tensor("dx", args.dx, dtype, {rows, dim});
  for (const View& addend : args.dy) {
    check.tensor("dy", addend, dtype, {rows, dim});
    check.distinct("dx", args.dx, "dy", addend);
  }
  check.gradient("dgamma", args.dgamma, dtype, {dim});
  if (args.kind == NormKind::layer_norm) {
    check.tensor("mean", args.mean, statistics_type(dtype), {rows});
    check.optional_tensor("dbeta", args.dbeta, args.dgamma.dtype, {dim});
  } else {
    check.absent("mean", args.mean, "for RMSNorm");
    check.absent("dbeta", args.dbeta, "for RMSNorm");
  }
  check.scale_of("dx", args.dx, args.scale);
  return check.on_cuda() ? cuda::norm_backward(stream, context, args) : cpu::norm_backward(stream, context, args);
}

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
  return check.on_cuda() ? cuda::qk_norm_forward(stream, args) : cpu::qk_norm_forward(stream, args);
}

void qk_norm_backward(StreamRef stream, OpContext& context, const QkNormBackward& args) {
  const ArgumentCheck check("qk_norm_backward", stream, context);
  check_qk_norm(check, args);
  check.tensor("dqkv", args.dqkv, args.x.dtype, args.x.shape);
  check.distinct("dqkv", args.dqkv, "x", args.x);
  check.gradient("dquery_gain", args.dquery_gain, args.x.dtype, {args.shape.head_dim});
  check.tensor("dkey_gain", args.dkey_gain, args.dquery_gain.dtype, {args.shape.head_dim});
  return check.on_cuda() ? cuda::qk_norm_backward(stream, context, args) : cpu::qk_norm_backward(stream, context, args);
}

}  // namespace plait::ops
