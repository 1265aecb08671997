#include "ops/cuda/elementwise.cuh"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

// The narrower type decides how many elements one 16-byte access holds.
template <typename From, typename To>
using Narrower = std::conditional_t<(sizeof(From) < sizeof(To)), From, To>;

template <typename From, typename To>
struct Convert {
  const From* from;
  To* to;
  template <int Width>
  __device__ void run(std::int64_t first) const {
    float values[Width];
    load<Width>(from + first, values);
    store<Width>(to + first, values);
  }
};

template <typename From, typename To>
struct Add {
  const From* x;
  To* y;
  template <int Width>
  __device__ void run(std::int64_t first) const {
    float a[Width], b[Width];
    load<Width>(x + first, a);
    load<Width>(y + first, b);
#pragma unroll
    for (int i = 0; i < Width; ++i) b[i] += a[i];
    store<Width>(y + first, b);
  }
};

// 32-bit indices: the caller cuts the rows into launches.
template <typename T>
struct AddBiasAndResidual {
  const T *x, *bias, *residual;  // bias and residual: nullptr if absent
  T* y;
  std::uint32_t dim;
  template <int Width>
  __device__ void run(std::int64_t first) const {
    float values[Width];
    load<Width>(x + first, values);
    if (bias) add_from<Width>(bias + static_cast<std::uint32_t>(first) % dim, values);
    if (residual) add_from<Width>(residual + first, values);
    store<Width>(y + first, values);
  }
  template <int Width>
  __device__ static void add_from(const T* from, float (&values)[Width]) {
    float terms[Width];
    load<Width>(from, terms);
#pragma unroll
    for (int i = 0; i < Width; ++i) values[i] += terms[i];
  }
};

}  // namespace

void convert(StreamRef stream, View from, View to) {
  if (from.dtype == to.dtype) {
    if (from.data != to.data) stream.copy(to.data, from.data, from.bytes());
    return;
  }
  with_type(from.dtype, [&](auto f) {
    with_type(to.dtype, [&](auto t) {
      using From = decltype(f);
      using To = decltype(t);
      elementwise<Narrower<From, To>>(stream, from.elements(), aligned_16({from.data, to.data}),
                                      Convert<From, To>{device_pointer<From>(from), device_pointer<To>(to)});
    });
  });
}

void add(StreamRef stream, View x, View y) {
  with_type(x.dtype, [&](auto f) {
    with_type(y.dtype, [&](auto t) {
      using From = decltype(f);
      using To = decltype(t);
      elementwise<Narrower<From, To>>(stream, x.elements(), aligned_16({x.data, y.data}),
                                      Add<From, To>{device_pointer<From>(x), device_pointer<To>(y)});
    });
  });
}

void add_bias_residual(StreamRef stream, const AddBiasResidual& args) {
  const std::int64_t rows = args.y.shape[0], dim = args.y.shape[1];
  with_type(args.y.dtype, [&](auto t) {
    using T = decltype(t);
    const bool vectorised =
        dim % pack_width<T> == 0 && aligned_16({args.x.data, args.bias.data, args.residual.data, args.y.data});
    for_row_pieces(rows, dim, [&](std::int64_t first, std::int64_t count) {
      const std::int64_t offset = first * dim;
      elementwise<T>(stream, count * dim, vectorised,
                     AddBiasAndResidual<T>{device_pointer<T>(args.x) + offset, device_pointer<T>(args.bias),
                                           args.residual ? device_pointer<T>(args.residual) + offset : nullptr,
                                           device_pointer<T>(args.y) + offset, static_cast<std::uint32_t>(dim)});
    });
  });
}

}  // namespace plait::ops::cuda
