#include "ops/cpu/types.h"
#include "ops/implementations.h"

namespace plait::ops::cpu {

void convert(StreamRef stream, View from, View to) {
  enqueue(stream, from.dtype, [=]<typename From>(std::type_identity<From>) {
    with_type(to.dtype, [&]<typename To>(std::type_identity<To>) {
      const From* source = from.as<From>();
      To* target = to.as<To>();
      for (std::int64_t i = 0, n = from.elements(); i < n; ++i)
        target[i] = store<To>(static_cast<Arithmetic<To>>(load(source[i])));
    });
  });
}

void add(StreamRef stream, View x, View y) {
  enqueue(stream, x.dtype, [=]<typename From>(std::type_identity<From>) {
    with_type(y.dtype, [&]<typename To>(std::type_identity<To>) {
      const From* from = x.as<From>();
      To* to = y.as<To>();
      for (std::int64_t i = 0, n = x.elements(); i < n; ++i)
        to[i] = store<To>(static_cast<Arithmetic<To>>(load(to[i]) + load(from[i])));
    });
  });
}

void add_bias_residual(StreamRef stream, const AddBiasResidual& args) {
  enqueue(stream, args.x.dtype, [args]<typename T>(std::type_identity<T>) {
    const std::int64_t rows = args.x.shape[0], dim = args.x.shape[1];
    const T* bias = args.bias ? args.bias.as<T>() : nullptr;
    for (std::int64_t row = 0; row < rows; ++row) {
      const T* x = args.x.as<T>() + row * dim;
      const T* residual = args.residual ? args.residual.as<T>() + row * dim : nullptr;
      T* y = args.y.as<T>() + row * dim;
      for (std::int64_t i = 0; i < dim; ++i) {
        Arithmetic<T> value = load(x[i]);
        if (bias) value += load(bias[i]);
        if (residual) value += load(residual[i]);
        y[i] = store<T>(value);
      }
    }
  });
}

}  // namespace plait::ops::cpu
