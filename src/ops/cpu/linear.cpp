#include "ops/cpu/column_sums.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/math.h"
#include "ops/cpu/types.h"
#include "ops/implementations.h"

namespace plait::ops::cpu {
namespace {

template <typename T>
void forward(const LinearForward& args) {
  using A = Arithmetic<T>;
  const std::int64_t rows = args.x.shape[0], in = args.x.shape[1], out = args.w.shape[0];
  const Operand<T> x(args.x), w(args.w);
  const bool with_gelu = args.epilogue == Epilogue::gelu;
  Result<T> product(with_gelu ? args.pre_activation : args.y);
  A* values = product.data();

  // Bias and residual go where the product will be added to them: no second pass over y.
  const T* bias = args.bias ? args.bias.as<T>() : nullptr;
  const T* residual = args.residual ? args.residual.as<T>() : nullptr;
  if (bias || residual) {
    for (std::int64_t row = 0; row < rows; ++row) {
      A* to = values + row * out;
      const T* from = residual ? residual + row * out : nullptr;
      if (bias && from) {
        for (std::int64_t i = 0; i < out; ++i) to[i] = load(from[i]) + load(bias[i]);
      } else {
        const T* only = bias ? bias : from;
        for (std::int64_t i = 0; i < out; ++i) to[i] = load(only[i]);
      }
    }
  }
  gemm<A>(rows, out, in, 1, {x.data(), in}, {w.data(), in, Transpose::yes}, bias || residual ? 1 : 0, values, out);
  if (with_gelu) {
    T* y = args.y.as<T>();
    for (std::int64_t i = 0, n = rows * out; i < n; ++i) y[i] = store<T>(gelu(values[i]));
  }
  product.finish();
}

template <typename T>
void backward_input(const LinearBackwardInput& args) {
  using A = Arithmetic<T>;
  const std::int64_t rows = args.dy.shape[0], out = args.dy.shape[1], in = args.w.shape[1];
  const Operand<T> dy(args.dy), w(args.w);
  Result<T> dx(args.dx);
  if (args.accumulate) dx.load_present();
  gemm<A>(rows, in, out, 1, {dy.data(), out}, {w.data(), in}, args.accumulate ? 1 : 0, dx.data(), in);
  if (args.pre_activation) {
    const T* at = args.pre_activation.as<T>();
    A* values = dx.data();
    for (std::int64_t i = 0, n = rows * in; i < n; ++i) values[i] *= gelu_derivative(load(at[i]));
  }
  dx.finish();
}

template <typename T, typename G>
void backward_weight(const LinearBackwardWeight& args) {
  using A = Arithmetic<T>;
  const std::int64_t rows = args.dy.shape[0], out = args.dy.shape[1], in = args.x.shape[1];
  const Operand<T> dy(args.dy), x(args.x);
  Result<G> dw(args.dw);
  if (args.accumulate) dw.load_present();
  gemm<A>(out, in, rows, 1, {dy.data(), out, Transpose::yes}, {x.data(), in}, args.accumulate ? 1 : 0, dw.data(), in);
  dw.finish();
  if (args.dbias) {
    ColumnSums<A> sums(out);
    for (std::int64_t row = 0; row < rows; ++row) {
      const A* from = dy.data() + row * out;
      sums.add_row([from](std::int64_t i) { return from[i]; });
    }
    sums.finish(args.dbias.as<G>(), args.accumulate);
  }
}

}  // namespace

void linear_forward(StreamRef stream, OpContext&, const LinearForward& args) {
  stream.enqueue_host([args] { with_type(args.x.dtype, [&]<typename T>(std::type_identity<T>) { forward<T>(args); }); });
}

void linear_backward_input(StreamRef stream, OpContext&, const LinearBackwardInput& args) {
  stream.enqueue_host(
      [args] { with_type(args.dy.dtype, [&]<typename T>(std::type_identity<T>) { backward_input<T>(args); }); });
}

void linear_backward_weight(StreamRef stream, OpContext&, const LinearBackwardWeight& args) {
  stream.enqueue_host([args] {
    with_type(args.dy.dtype, [&]<typename T>(std::type_identity<T>) {
      with_gradient_type<T>(args.dw.dtype, [&]<typename G>(std::type_identity<G>) { backward_weight<T, G>(args); });
    });
  });
}

}  // namespace plait::ops::cpu
