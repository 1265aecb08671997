#include <algorithm>
#include <cmath>

#include "ops/cpu/column_sums.h"
#include "ops/cpu/math.h"
#include "ops/cpu/types.h"
#include "ops/implementations.h"

namespace plait::ops::cpu {
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
  stream.enqueue_host([args] { with_type(args.x.dtype, [&]<typename T>(std::type_identity<T>) { norm_heads<T>(args); }); });
}

void qk_norm_backward(StreamRef stream, OpContext&, const QkNormBackward& args) {
  stream.enqueue_host([args] {
    with_type(args.x.dtype, [&]<typename T>(std::type_identity<T>) {
      with_gradient_type<T>(args.dquery_gain.dtype,
                            [&]<typename G>(std::type_identity<G>) { norm_heads_backward<T, G>(args); });
    });
  });
}

}  // namespace plait::ops::cpu
