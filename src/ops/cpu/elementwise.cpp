#include "ops/cpu/math.h"
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

void gelu_forward(StreamRef stream, OpContext& context, View x, View y, View scale) {
  enqueue(stream, x.dtype, [=]<typename T>(std::type_identity<T>) {
    const T* from = x.as<T>();
    T* to = y.as<T>();
    for (std::int64_t i = 0, n = x.elements(); i < n; ++i) to[i] = store<T>(gelu(load(from[i])));
  });
  if (scale) cpu::find_scale(stream, context, y, scale, OperandOf::x);
}

void gelu_backward(StreamRef stream, OpContext& context, View x, View dy, View dx, View scale) {
  enqueue(stream, x.dtype, [=]<typename T>(std::type_identity<T>) {
    const T* at = x.as<T>();
    const T* from = dy.as<T>();
    T* to = dx.as<T>();
    for (std::int64_t i = 0, n = x.elements(); i < n; ++i) to[i] = store<T>(load(from[i]) * gelu_derivative(load(at[i])));
  });
  if (scale) cpu::find_scale(stream, context, dx, scale, OperandOf::x);
}

void swiglu_forward(StreamRef stream, OpContext& context, View gate_up, View y, View scale) {
  enqueue(stream, y.dtype, [=]<typename T>(std::type_identity<T>) {
    const std::int64_t rows = y.shape[0], dim = y.shape[1];
    for (std::int64_t row = 0; row < rows; ++row) {
      const T* gate = gate_up.as<T>() + row * 2 * dim;
      const T* up = gate + dim;
      T* to = y.as<T>() + row * dim;
      for (std::int64_t i = 0; i < dim; ++i) {
        const auto g = load(gate[i]);
        to[i] = store<T>(g * sigmoid(g) * load(up[i]));
      }
    }
  });
  if (scale) cpu::find_scale(stream, context, y, scale, OperandOf::x);
}

void swiglu_backward(StreamRef stream, OpContext& context, View gate_up, View dy, View dgate_up, View y, View scale) {
  enqueue(stream, dy.dtype, [=]<typename T>(std::type_identity<T>) {
    const std::int64_t rows = dy.shape[0], dim = dy.shape[1];
    for (std::int64_t row = 0; row < rows; ++row) {
      const T* gate = gate_up.as<T>() + row * 2 * dim;
      const T* up = gate + dim;
      const T* from = dy.as<T>() + row * dim;
      T* dgate = dgate_up.as<T>() + row * 2 * dim;
      T* dup = dgate + dim;
      T* again = y ? y.as<T>() + row * dim : nullptr;
      for (std::int64_t i = 0; i < dim; ++i) {
        const auto g = load(gate[i]), u = load(up[i]), d = load(from[i]);
        const auto s = sigmoid(g);
        dgate[i] = store<T>(d * u * s * (1 + g * (1 - s)));
        dup[i] = store<T>(d * g * s);
        if (again) again[i] = store<T>(g * s * u);
      }
    }
  });
  if (scale) cpu::find_scale(stream, context, dgate_up, scale, OperandOf::x);
}

}  // namespace plait::ops::cpu
