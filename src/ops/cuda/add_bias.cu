#include "ops/cuda/add_bias.h"

#include "ops/cuda/elementwise.cuh"

namespace plait::ops::cuda {
namespace {

template <typename T>
struct AddBias {
  const T* bias;
  T* y;
  std::int64_t columns;
  template <int Width>
  __device__ void run(std::int64_t first) const {
    float values[Width], b[Width];
    load<Width>(y + first, values);
    load<Width>(bias + first % columns, b);
#pragma unroll
    for (int i = 0; i < Width; ++i) values[i] += b[i];
    store<Width>(y + first, values);
  }
};

}  // namespace

void add_bias(StreamRef stream, View bias, View y) {
  const std::int64_t columns = bias.elements();
  with_type(y.dtype, [&](auto t) {
    using T = decltype(t);
    elementwise<T>(stream, y.elements(), columns % pack_width<T> == 0 && aligned_16({bias.data, y.data}),
                   AddBias<T>{device_pointer<T>(bias), device_pointer<T>(y), columns});
  });
}

}  // namespace plait::ops::cuda
