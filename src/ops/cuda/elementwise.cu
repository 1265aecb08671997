#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/elementwise.cuh"

namespace plait::ops::cuda {
namespace {

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

template <typename T>
struct Add {
  const T* x;
  T* y;
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
      using Narrow = std::conditional_t<(sizeof(From) < sizeof(To)), From, To>;
      elementwise<Narrow>(stream, from.elements(), aligned_16({from.data, to.data}),
                          Convert<From, To>{device_pointer<From>(from), device_pointer<To>(to)});
    });
  });
}

void add(StreamRef stream, View x, View y) {
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    elementwise<T>(stream, x.elements(), aligned_16({x.data, y.data}), Add<T>{device_pointer<T>(x), device_pointer<T>(y)});
  });
}

}  // namespace plait::ops::cuda
