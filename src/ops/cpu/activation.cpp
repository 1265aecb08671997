#include "ops/cpu/math.h"
#include "ops/cpu/types.h"
#include "ops/implementations.h"

namespace plait::ops::cpu {

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
