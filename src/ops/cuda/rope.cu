#include <algorithm>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/pack.cuh"

namespace plait::ops::cuda {
namespace {

// One block per token; each thread rotates Width pairs of one head at a time. Query and key heads come first in a row, so
// they are one run of `rotated_heads` heads.
template <typename T, int Width>
__global__ void __launch_bounds__(256) rope_kernel(T* qkv, const float* table, int sequence, int row_elements, int rotated_heads,
                                                   int head_dim, float sine_sign) {
  const std::int64_t token = blockIdx.x;
  const int half = head_dim / 2, packs = half / Width;
  T* row = qkv + token * row_elements;
  const float* cosine = table + (token % sequence) * head_dim;
  for (int item = threadIdx.x; item < rotated_heads * packs; item += blockDim.x) {
    const int head = item / packs, i = (item % packs) * Width;
    T* first = row + head * head_dim + i;
    float a[Width], b[Width], c[Width], s[Width];
    load<Width>(first, a);
    load<Width>(first + half, b);
    load<Width>(cosine + i, c);
    load<Width>(cosine + half + i, s);
#pragma unroll
    for (int j = 0; j < Width; ++j) {
      const float sine = s[j] * sine_sign, x = a[j], y = b[j];
      a[j] = x * c[j] - y * sine;
      b[j] = y * c[j] + x * sine;
    }
    store<Width>(first, a);
    store<Width>(first + half, b);
  }
}

}  // namespace

void rope(StreamRef stream, const Rope& args) {
  const AttentionShape& s = args.shape;
  const std::int64_t tokens = s.batch * s.sequence, rotated_heads = s.heads + s.kv_heads, half = s.head_dim / 2;
  with_type(args.qkv.dtype, [&](auto t) {
    using T = decltype(t);
    const bool vectorised = half % pack_width<T> == 0 && aligned_16({args.qkv.data, args.table.data});
    with_width<T>(vectorised, [&](auto w) {
      constexpr int width = decltype(w)::value;
      const std::int64_t items = rotated_heads * (half / width);
      const unsigned threads = static_cast<unsigned>(std::min<std::int64_t>(256, round_up(items, 32)));
      rope_kernel<T, width><<<grid_size(tokens), threads, 0, native(stream)>>>(
          device_pointer<T>(args.qkv), device_pointer<float>(args.table), static_cast<int>(s.sequence),
          static_cast<int>((s.heads + 2 * s.kv_heads) * s.head_dim), static_cast<int>(rotated_heads), static_cast<int>(s.head_dim),
          args.inverse ? -1.0f : 1.0f);
      check_launch();
    });
  });
}

}  // namespace plait::ops::cuda
