#include "ops/cuda/activation_math.cuh"
#include "ops/cuda/elementwise.cuh"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

template <typename T>
struct GeluForward {
  const T* x;
  T* y;
  template <int Width>
  __device__ void run(std::int64_t first) const {
    float values[Width];
    load<Width>(x + first, values);
#pragma unroll
    for (int i = 0; i < Width; ++i) values[i] = gelu(values[i]);
    store<Width>(y + first, values);
  }
};

template <typename T>
struct GeluBackward {
  const T *x, *dy;
  T* dx;
  template <int Width>
  __device__ void run(std::int64_t first) const {
    float values[Width], gradient[Width];
    load<Width>(x + first, values);
    load<Width>(dy + first, gradient);
#pragma unroll
    for (int i = 0; i < Width; ++i) gradient[i] *= gelu_derivative(values[i]);
    store<Width>(dx + first, gradient);
  }
};

// Element i of y[rows, dim] belongs to gate_up[row, column] and gate_up[row, dim + column]. A pack never crosses a row when it
// is vectorised, because dim is then a multiple of the width. 32-bit indices: the caller cuts the rows into launches.
template <typename T>
struct SwigluForward {
  const T* gate_up;
  T* y;
  std::uint32_t dim;
  template <int Width>
  __device__ void run(std::int64_t first) const {
    const std::uint32_t row = static_cast<std::uint32_t>(first) / dim, column = static_cast<std::uint32_t>(first) % dim;
    const T* gate = gate_up + static_cast<std::int64_t>(row) * 2 * dim + column;
    float g[Width], u[Width];
    load<Width>(gate, g);
    load<Width>(gate + dim, u);
#pragma unroll
    for (int i = 0; i < Width; ++i) g[i] = g[i] * sigmoid(g[i]) * u[i];
    store<Width>(y + first, g);
  }
};

template <typename T>
struct SwigluBackward {
  const T *gate_up, *dy;
  T *dgate_up, *y;  // y may be null
  std::uint32_t dim;
  template <int Width>
  __device__ void run(std::int64_t first) const {
    const std::uint32_t row = static_cast<std::uint32_t>(first) / dim, column = static_cast<std::uint32_t>(first) % dim;
    const std::int64_t offset = static_cast<std::int64_t>(row) * 2 * dim + column;
    float g[Width], u[Width], d[Width];
    load<Width>(gate_up + offset, g);
    load<Width>(gate_up + offset + dim, u);
    load<Width>(dy + first, d);
#pragma unroll
    for (int i = 0; i < Width; ++i) {
      const float s = sigmoid(g[i]), again = g[i] * s * u[i];
      const float du = d[i] * g[i] * s;
      g[i] = d[i] * u[i] * s * (1.0f + g[i] * (1.0f - s));
      u[i] = du;
      d[i] = again;
    }
    if (y) store<Width>(y + first, d);
    store<Width>(dgate_up + offset, g);
    store<Width>(dgate_up + offset + dim, u);
  }
};

}  // namespace

void gelu_forward(StreamRef stream, View x, View y) {
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    elementwise<T>(stream, x.elements(), aligned_16({x.data, y.data}),
                   GeluForward<T>{device_pointer<T>(x), device_pointer<T>(y)});
  });
}

void gelu_backward(StreamRef stream, View x, View dy, View dx) {
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    elementwise<T>(stream, x.elements(), aligned_16({x.data, dy.data, dx.data}),
                   GeluBackward<T>{device_pointer<T>(x), device_pointer<T>(dy), device_pointer<T>(dx)});
  });
}

void swiglu_forward(StreamRef stream, View gate_up, View y) {
  const std::int64_t rows = y.shape[0], dim = y.shape[1];
  with_type(y.dtype, [&](auto t) {
    using T = decltype(t);
    const bool vectorised = dim % pack_width<T> == 0 && aligned_16({gate_up.data, y.data});
    for_row_pieces(rows, dim, [&](std::int64_t first, std::int64_t count) {
      elementwise<T>(stream, count * dim, vectorised,
                     SwigluForward<T>{device_pointer<T>(gate_up) + first * 2 * dim, device_pointer<T>(y) + first * dim,
                                      static_cast<std::uint32_t>(dim)});
    });
  });
}

void swiglu_backward(StreamRef stream, View gate_up, View dy, View dgate_up, View y) {
  const std::int64_t rows = dy.shape[0], dim = dy.shape[1];
  with_type(dy.dtype, [&](auto t) {
    using T = decltype(t);
    const bool vectorised = dim % pack_width<T> == 0 && aligned_16({gate_up.data, dy.data, dgate_up.data, y.data});
    for_row_pieces(rows, dim, [&](std::int64_t first, std::int64_t count) {
      elementwise<T>(stream, count * dim, vectorised,
                     SwigluBackward<T>{device_pointer<T>(gate_up) + first * 2 * dim, device_pointer<T>(dy) + first * dim,
                                       device_pointer<T>(dgate_up) + first * 2 * dim,
                                       y ? device_pointer<T>(y) + first * dim : nullptr, static_cast<std::uint32_t>(dim)});
    });
  });
}

}  // namespace plait::ops::cuda
