#include "ops/cuda/activation_math.cuh"
#include "ops/cuda/elementwise.cuh"
#include "ops/cuda/scale.cuh"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

// Receives the packs of an elementwise() body where no scale is wanted, and drops them.
struct Untaken {
  template <typename P>
  __device__ void take(const P&) const {}
};

template <int Width, typename T, typename Largest>
__device__ void store_and_take(T* to, const float (&values)[Width], Largest& largest) {
  const Pack<T, Width> pack = make_pack<T>(values);
  largest.take(pack);
  store_pack(to, pack);
}

template <typename T>
struct GeluForward {
  const T* x;
  T* y;
  template <int Width, typename Largest = Untaken>
  __device__ void run(std::int64_t first, Largest&& largest = Largest()) const {
    float values[Width];
    load<Width>(x + first, values);
#pragma unroll
    for (int i = 0; i < Width; ++i) values[i] = gelu<T>(values[i]);
    store_and_take<Width>(y + first, values, largest);
  }
};

template <typename T>
struct GeluBackward {
  const T *x, *dy;
  T* dx;
  template <int Width, typename Largest = Untaken>
  __device__ void run(std::int64_t first, Largest&& largest = Largest()) const {
    float values[Width], gradient[Width];
    load<Width>(x + first, values);
    load<Width>(dy + first, gradient);
#pragma unroll
    for (int i = 0; i < Width; ++i) gradient[i] *= gelu_derivative<T>(values[i]);
    store_and_take<Width>(dx + first, gradient, largest);
  }
};

// Element i of y[rows, dim] belongs to gate_up[row, column] and gate_up[row, dim + column]. A pack never crosses a row when it
// is vectorised, because dim is then a multiple of the width. 32-bit indices: the caller cuts the rows into launches.
template <typename T>
struct SwigluForward {
  const T* gate_up;
  T* y;
  std::uint32_t dim;
  template <int Width, typename Largest = Untaken>
  __device__ void run(std::int64_t first, Largest&& largest = Largest()) const {
    const std::uint32_t row = static_cast<std::uint32_t>(first) / dim, column = static_cast<std::uint32_t>(first) % dim;
    const T* gate = gate_up + static_cast<std::int64_t>(row) * 2 * dim + column;
    float g[Width], u[Width];
    load<Width>(gate, g);
    load<Width>(gate + dim, u);
#pragma unroll
    for (int i = 0; i < Width; ++i) g[i] = g[i] * sigmoid<T>(g[i]) * u[i];
    store_and_take<Width>(y + first, g, largest);
  }
};

template <typename T>
struct SwigluBackward {
  const T *gate_up, *dy;
  T *dgate_up, *y;  // y may be null
  std::uint32_t dim;
  template <int Width, typename Largest = Untaken>
  __device__ void run(std::int64_t first, Largest&& largest = Largest()) const {
    const std::uint32_t row = static_cast<std::uint32_t>(first) / dim, column = static_cast<std::uint32_t>(first) % dim;
    const std::int64_t offset = static_cast<std::int64_t>(row) * 2 * dim + column;
    float g[Width], u[Width], d[Width];
    load<Width>(gate_up + offset, g);
    load<Width>(gate_up + offset + dim, u);
    load<Width>(dy + first, d);
#pragma unroll
    for (int i = 0; i < Width; ++i) {
      const float s = sigmoid<T>(g[i]), again = g[i] * s * u[i];
      const float du = d[i] * g[i] * s;
      g[i] = d[i] * u[i] * s * (1.0f + g[i] * (1.0f - s));
      u[i] = du;
      d[i] = again;
    }
    if (y) store<Width>(y + first, d);
    store_and_take<Width>(dgate_up + offset, g, largest);
    store_and_take<Width>(dgate_up + offset + dim, u, largest);
  }
};

// body[T] over `count` elements, and the scale of its output if one is wanted: then T is bf16 and all packs are whole.
template <typename T, typename Body>
void activate(StreamRef stream, OpContext& context, std::int64_t count, bool vectorised, const Body& body, View scale) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (scale) {
      require(vectorised, "an activation function with a scale: tensors are aligned to 16 bytes");
      return scaling_elementwise(stream, context, count, body, scale);
    }
  }
  elementwise<T>(stream, count, vectorised, body);
}

// activate() for bodies that divide by `dim`: body(first_row) handles the rows from first_row on.
template <typename T, typename MakeBody>
void activate_rows(StreamRef stream, OpContext& context, std::int64_t rows, std::int64_t dim, bool vectorised,
                   const MakeBody& body, View written, View scale) {
  const bool at_once = rows <= rows_of_piece(dim);
  for_row_pieces(rows, dim, [&](std::int64_t first, std::int64_t count) {
    activate<T>(stream, context, count * dim, vectorised, body(first), at_once ? scale : View());
  });
  if (scale && !at_once) cuda::find_scale(stream, context, written, scale, OperandOf::x);
}

}  // namespace

void gelu_forward(StreamRef stream, OpContext& context, View x, View y, View scale) {
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    activate<T>(stream, context, x.elements(), aligned_16({x.data, y.data}),
                GeluForward<T>{device_pointer<T>(x), device_pointer<T>(y)}, scale);
  });
}

void gelu_backward(StreamRef stream, OpContext& context, View x, View dy, View dx, View scale) {
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    activate<T>(stream, context, x.elements(), aligned_16({x.data, dy.data, dx.data}),
                GeluBackward<T>{device_pointer<T>(x), device_pointer<T>(dy), device_pointer<T>(dx)}, scale);
  });
}

void swiglu_forward(StreamRef stream, OpContext& context, View gate_up, View y, View scale) {
  const std::int64_t rows = y.shape[0], dim = y.shape[1];
  with_type(y.dtype, [&](auto t) {
    using T = decltype(t);
    const bool vectorised = dim % pack_width<T> == 0 && aligned_16({gate_up.data, y.data});
    const auto body = [&](std::int64_t first) {
      return SwigluForward<T>{device_pointer<T>(gate_up) + first * 2 * dim, device_pointer<T>(y) + first * dim,
                              static_cast<std::uint32_t>(dim)};
    };
    activate_rows<T>(stream, context, rows, dim, vectorised, body, y, scale);
  });
}

void swiglu_backward(StreamRef stream, OpContext& context, View gate_up, View dy, View dgate_up, View y, View scale) {
  const std::int64_t rows = dy.shape[0], dim = dy.shape[1];
  with_type(dy.dtype, [&](auto t) {
    using T = decltype(t);
    const bool vectorised = dim % pack_width<T> == 0 && aligned_16({gate_up.data, dy.data, dgate_up.data, y.data});
    const auto body = [&](std::int64_t first) {
      return SwigluBackward<T>{device_pointer<T>(gate_up) + first * 2 * dim, device_pointer<T>(dy) + first * dim,
                               device_pointer<T>(dgate_up) + first * 2 * dim, y ? device_pointer<T>(y) + first * dim : nullptr,
                               static_cast<std::uint32_t>(dim)};
    };
    activate_rows<T>(stream, context, rows, dim, vectorised, body, dgate_up, scale);
  });
}

}  // namespace plait::ops::cuda
