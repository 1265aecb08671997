#include <memory>
#include <optional>

#include "ops/cpu/column_sums.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/math.h"
#include "ops/cpu/types.h"
#include "ops/implementations.h"

namespace plait::ops::cpu {
namespace {

// An operand of a product: a tensor's own elements, or their quantized values.
template <typename T>
class ProductOperand {
 public:
  ProductOperand(const View& view, const Quantized& quantized, View Quantized::* form) {
    const std::int64_t columns = view.shape[1];
    if (!quantized) {
      plain_.emplace(view);
      operand_ = {plain_->data(), columns};
      return;
    }
    const View& from = quantized.*form;
    const auto scale = static_cast<Arithmetic<T>>(quantized.scale.as<float>()[0]);
    const Float8* const bytes = from.as<Float8>();
    values_ = std::make_unique_for_overwrite<Arithmetic<T>[]>(static_cast<std::size_t>(from.elements()));
    for (std::int64_t i = 0, n = from.elements(); i < n; ++i)
      values_[static_cast<std::size_t>(i)] = scale * static_cast<Arithmetic<T>>(static_cast<float>(bytes[i]));
    operand_ = {values_.get(), from.shape[1], form == &Quantized::transposed ? Transpose::yes : Transpose::no};
  }
  MatrixOperand<Arithmetic<T>> get() const { return operand_; }
  MatrixOperand<Arithmetic<T>> transposed() const {
    return {operand_.data, operand_.row_stride, operand_.transpose == Transpose::yes ? Transpose::no : Transpose::yes};
  }

 private:
  std::optional<Operand<T>> plain_;
  std::unique_ptr<Arithmetic<T>[]> values_;
  MatrixOperand<Arithmetic<T>> operand_{};
};

template <typename T>
void forward(const LinearForward& args) {
  using A = Arithmetic<T>;
  const std::int64_t rows = args.x.shape[0], in = args.x.shape[1], out = args.w.shape[0];
  const ProductOperand<T> x(args.x, args.x8, &Quantized::values), w(args.w, args.w8, &Quantized::values);
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
  gemm<A>(rows, out, in, 1, x.get(), w.transposed(), bias || residual ? 1 : 0, values, out);
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
  const ProductOperand<T> dy(args.dy, args.dy8, &Quantized::values), w(args.w, args.w8, &Quantized::transposed);
  Result<T> dx(args.dx);
  if (args.accumulate) dx.load_present();
  gemm<A>(rows, in, out, 1, dy.get(), w.get(), args.accumulate ? 1 : 0, dx.data(), in);
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
  const ProductOperand<T> dy(args.dy, args.dy8, &Quantized::transposed), x(args.x, args.x8, &Quantized::transposed);
  Result<G> dw(args.dw);
  if (args.accumulate) dw.load_present();
  gemm<A>(out, in, rows, 1, dy.transposed(), x.get(), args.accumulate ? 1 : 0, dw.data(), in);
  dw.finish();
  if (args.dbias) sum_rows<T>(args.dy, args.dbias.as<G>(), args.accumulate);
}

}  // namespace

void linear_forward(StreamRef stream, OpContext&, const LinearForward& args) {
  enqueue(stream, args.x.dtype, [args]<typename T>(std::type_identity<T>) { forward<T>(args); });
}

void linear_backward_input(StreamRef stream, OpContext&, const LinearBackwardInput& args) {
  enqueue(stream, args.dy.dtype, [args]<typename T>(std::type_identity<T>) { backward_input<T>(args); });
}

void linear_backward_weight(StreamRef stream, OpContext&, const LinearBackwardWeight& args) {
  enqueue(stream, args.dy.dtype, args.dw.dtype,
          [args]<typename T, typename G>(std::type_identity<T>, std::type_identity<G>) { backward_weight<T, G>(args); });
}

}  // namespace plait::ops::cpu
