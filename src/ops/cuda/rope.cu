#include <algorithm>

#include "core/error.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/pack.cuh"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

// A thread rotates Width pairs of one head of one token. Query and key heads come first in a row, so they are one run of
// `rotated_heads` heads.
template <typename T, int Width>
__global__ void __launch_bounds__(256)
    rope_kernel(T* qkv, const float* table, const int* starts, std::uint32_t items, std::uint32_t sequence,
                std::uint32_t row_elements, std::uint32_t rotated_heads, std::uint32_t head_dim, float sine_sign) {
  await_previous_kernel();
  let_next_kernel_begin();
  const std::uint32_t item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= items) return;
  const std::uint32_t half = head_dim / 2, packs = half / Width;
  const std::uint32_t head_of_token = item / packs, i = (item - head_of_token * packs) * Width;
  const std::uint32_t token = head_of_token / rotated_heads, head = head_of_token - token * rotated_heads;
  T* first = qkv + static_cast<std::int64_t>(token) * row_elements + head * head_dim + i;
  const std::uint32_t position = token % sequence - (starts ? static_cast<std::uint32_t>(starts[token]) : 0);
  const float* cosine = table + position * head_dim + i;
  float a[Width], b[Width], c[Width], s[Width];
  load<Width>(first, a);
  load<Width>(first + half, b);
  load<Width>(cosine, c);
  load<Width>(cosine + half, s);
#pragma unroll
  for (int j = 0; j < Width; ++j) {
    const float sine = s[j] * sine_sign, x = a[j], y = b[j];
    a[j] = x * c[j] - y * sine;
    b[j] = y * c[j] + x * sine;
  }
  store<Width>(first, a);
  store<Width>(first + half, b);
}

}  // namespace

void rope(StreamRef stream, const Rope& args) {
  const AttentionShape& s = args.shape;
  const std::int64_t rotated_heads = s.heads + s.kv_heads, row_elements = (s.heads + 2 * s.kv_heads) * s.head_dim,
                     half = s.head_dim / 2;
  // Whole sequences per launch, few enough that a thread's index fits 32 bits.
  const std::int64_t items_per_sequence = s.sequence * rotated_heads * half;
  const std::int64_t most_batch = std::max<std::int64_t>(1, (std::int64_t{1} << 31) / items_per_sequence);
  with_type(args.qkv.dtype, [&](auto t) {
    using T = decltype(t);
    const bool vectorised = half % pack_width<T> == 0 && aligned_16({args.qkv.data, args.table.data});
    with_width<T>(vectorised, [&](auto w) {
      constexpr int width = decltype(w)::value;
      constexpr unsigned threads = 256;
      for (std::int64_t first = 0; first < s.batch; first += most_batch) {
        const std::int64_t items = std::min(most_batch, s.batch - first) * items_per_sequence / width;
        require(items <= UINT32_MAX, "rope: one sequence is too long for an index of 32 bits");
        launch(stream, {grid_size(ceil_div(items, threads)), threads}, rope_kernel<T, width>,
               device_pointer<T>(args.qkv) + first * s.sequence * row_elements, device_pointer<float>(args.table),
               args.starts ? device_pointer<int>(args.starts) + first * s.sequence : nullptr, static_cast<std::uint32_t>(items),
               static_cast<std::uint32_t>(s.sequence), static_cast<std::uint32_t>(row_elements),
               static_cast<std::uint32_t>(rotated_heads), static_cast<std::uint32_t>(s.head_dim), args.inverse ? -1.0f : 1.0f);
      }
    });
  });
}

}  // namespace plait::ops::cuda
