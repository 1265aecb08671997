#include "ops/norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/cpu/column_sums.h"
#include "ops/cpu/math.h"
#include "ops/cpu/types.h"
#include "ops/implementations.h"

namespace plait::ops::cpu {
namespace {

template <typename T>
void forward(const NormForward& args) {
  using A = Arithmetic<T>;
  const std::int64_t rows = args.x.front().shape[0], dim = args.x.front().shape[1];
  const bool centred = args.kind == NormKind::layer_norm;
  const T* gamma = args.gamma.as<T>();
  const T* beta = args.beta ? args.beta.as<T>() : nullptr;
  const T* bias = args.bias ? args.bias.as<T>() : nullptr;
  const double n = static_cast<double>(dim);
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* x = args.x.front().as<T>() + row * dim;
    if (args.residual) {
      T* residual = args.residual.as<T>() + row * dim;
      for (std::int64_t i = 0; i < dim; ++i) {
        A sum = load(x[i]);
        for (std::size_t k = 1; k < args.x.size(); ++k) sum += load(args.x[k].as<T>()[row * dim + i]);
        residual[i] = store<T>(bias ? sum + load(bias[i]) : sum);
      }
      x = residual;  // the backward pass reads this, rounding included
    }
    const double mean = centred ? ordered_sum<double>(dim, [&](std::int64_t i) { return load(x[i]); }) / n : 0.0;
    const double variance = ordered_sum<double>(dim,
                                                [&](std::int64_t i) {
                                                  const double centred_value = static_cast<double>(load(x[i])) - mean;
                                                  return centred_value * centred_value;
                                                }) /
                            n;
    const double rstd = 1.0 / std::sqrt(variance + static_cast<double>(args.epsilon));
    const A shift = static_cast<A>(mean), scale = static_cast<A>(rstd);
    T* y = args.y.as<T>() + row * dim;
    if (beta) {
      for (std::int64_t i = 0; i < dim; ++i) y[i] = store<T>((load(x[i]) - shift) * scale * load(gamma[i]) + load(beta[i]));
    } else {
      for (std::int64_t i = 0; i < dim; ++i) y[i] = store<T>((load(x[i]) - shift) * scale * load(gamma[i]));
    }
    if (centred) args.mean.as<A>()[row] = shift;
    args.rstd.as<A>()[row] = scale;
  }
}

template <typename T, typename G>
void backward(const NormBackward& args) {
  using A = Arithmetic<T>;
  const std::int64_t rows = args.x.shape[0], dim = args.x.shape[1];
  const bool centred = args.kind == NormKind::layer_norm;
  const T* gamma = args.gamma.as<T>();
  const double n = static_cast<double>(dim);
  ColumnSums<A> gamma_sums(dim), beta_sums(args.dbeta ? dim : 0);
  std::vector<T> summed(args.dy.size() > 1 ? static_cast<std::size_t>(dim) : 0);
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* x = args.x.as<T>() + row * dim;
    const T* dy = args.dy.front().as<T>() + row * dim;
    if (!summed.empty()) {
      for (std::int64_t i = 0; i < dim; ++i) {
        A sum = load(dy[i]);
        for (std::size_t k = 1; k < args.dy.size(); ++k) sum += load(args.dy[k].as<T>()[row * dim + i]);
        summed[static_cast<std::size_t>(i)] = store<T>(sum);
      }
      dy = summed.data();
    }
    const A shift = centred ? args.mean.as<A>()[row] : A(0), scale = args.rstd.as<A>()[row];
    const auto normalised = [=](std::int64_t i) { return (load(x[i]) - shift) * scale; };
    const auto dnormalised = [=](std::int64_t i) { return load(dy[i]) * load(gamma[i]); };
    const A mean_d = centred ? static_cast<A>(ordered_sum<double>(dim, dnormalised) / n) : A(0);
    const A mean_dx =
        static_cast<A>(ordered_sum<double>(dim, [&](std::int64_t i) { return dnormalised(i) * normalised(i); }) / n);
    // Before dx: it may be the memory of dresidual, never that of x or dy.
    gamma_sums.add_row([=](std::int64_t i) { return load(dy[i]) * normalised(i); });
    if (args.dbeta) beta_sums.add_row([=](std::int64_t i) { return load(dy[i]); });
    const T* dresidual = args.dresidual ? args.dresidual.as<T>() + row * dim : nullptr;
    T* dx = args.dx.as<T>() + row * dim;
    const auto gradient = [=](std::int64_t i) { return scale * (dnormalised(i) - mean_d - normalised(i) * mean_dx); };
    if (dresidual) {
      for (std::int64_t i = 0; i < dim; ++i) dx[i] = store<T>(load(dresidual[i]) + gradient(i));
    } else {
      for (std::int64_t i = 0; i < dim; ++i) dx[i] = store<T>(gradient(i));
    }
  }
  gamma_sums.finish(args.dgamma.as<G>(), args.accumulate);
  if (args.dbeta) beta_sums.finish(args.dbeta.as<G>(), args.accumulate);
}

}  // namespace

void norm_forward(StreamRef stream, OpContext& context, const NormForward& args) {
  enqueue(stream, args.x.front().dtype, [args]<typename T>(std::type_identity<T>) { forward<T>(args); });
  if (args.scale) cpu::find_scale(stream, context, args.y, args.scale, OperandOf::x);
}

void norm_backward(StreamRef stream, OpContext& context, const NormBackward& args) {
  enqueue(stream, args.x.dtype, args.dgamma.dtype,
          [args]<typename T, typename G>(std::type_identity<T>, std::type_identity<G>) { backward<T, G>(args); });
  if (args.scale) cpu::find_scale(stream, context, args.dx, args.scale, OperandOf::x);
}

namespace {

template <typename T>
Arithmetic<T> reciprocal_root_mean_square(const T* x, std::int64_t dim, float epsilon) {
  const double squares = ordered_sum<double>(dim, [=](std::int64_t i) {
    const auto value = static_cast<double>(load(x[i]));
    return value * value;
  });
  return static_cast<Arithmetic<T>>(1.0 / std::sqrt(squares / static_cast<double>(dim) + static_cast<double>(epsilon)));
}

template <typename T>
void norm_heads(const QkNormForward& args) {
  const AttentionShape& s = args.shape;
  const std::int64_t dim = s.head_dim, heads = s.heads + 2 * s.kv_heads;
  for (std::int64_t vector = 0; vector < s.batch * s.sequence * heads; ++vector) {
    const std::int64_t head = vector % heads;
    const T* x = args.x.as<T>() + vector * dim;
    T* y = args.y.as<T>() + vector * dim;
    if (head >= s.heads + s.kv_heads) {
      std::copy_n(x, dim, y);
      continue;
    }
    const T* gain = (head < s.heads ? args.query_gain : args.key_gain).as<T>();
    const Arithmetic<T> scale = reciprocal_root_mean_square(x, dim, args.epsilon);
    for (std::int64_t i = 0; i < dim; ++i) y[i] = store<T>(load(x[i]) * scale * load(gain[i]));
  }
}

template <typename T, typename G>
void norm_heads_backward(const QkNormBackward& args) {
  using A = Arithmetic<T>;
  const AttentionShape& s = args.shape;
  const std::int64_t dim = s.head_dim, heads = s.heads + 2 * s.kv_heads;
  ColumnSums<A> query_sums(dim), key_sums(dim);
  for (std::int64_t vector = 0; vector < s.batch * s.sequence * heads; ++vector) {
    const std::int64_t head = vector % heads;
    if (head >= s.heads + s.kv_heads) continue;
    const bool query = head < s.heads;
    const T* x = args.x.as<T>() + vector * dim;
    const T* gain = (query ? args.query_gain : args.key_gain).as<T>();
    T* gradient = args.dqkv.as<T>() + vector * dim;
    const A scale = reciprocal_root_mean_square(x, dim, args.epsilon);
    const auto normalised = [=](std::int64_t i) { return load(x[i]) * scale; };
    const auto dnormalised = [=](std::int64_t i) { return load(gradient[i]) * load(gain[i]); };
    const A mean = static_cast<A>(ordered_sum<double>(dim, [&](std::int64_t i) { return dnormalised(i) * normalised(i); }) /
                                  static_cast<double>(dim));
    (query ? query_sums : key_sums).add_row([=](std::int64_t i) { return load(gradient[i]) * normalised(i); });
    for (std::int64_t i = 0; i < dim; ++i) gradient[i] = store<T>(scale * (dnormalised(i) - normalised(i) * mean));
  }
  query_sums.finish(args.dquery_gain.as<G>(), false);
  key_sums.finish(args.dkey_gain.as<G>(), false);
}

}  // namespace

void qk_norm_forward(StreamRef stream, const QkNormForward& args) {
  enqueue(stream, args.x.dtype, [args]<typename T>(std::type_identity<T>) { norm_heads<T>(args); });
}

void qk_norm_backward(StreamRef stream, OpContext&, const QkNormBackward& args) {
  enqueue(stream, args.x.dtype, args.dquery_gain.dtype,
          [args]<typename T, typename G>(std::type_identity<T>, std::type_identity<G>) { norm_heads_backward<T, G>(args); });
}

}  // namespace plait::ops::cpu
