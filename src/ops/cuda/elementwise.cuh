// A flat map over `count` elements: thread t handles elements [t * Width, (t + 1) * Width), the last ones one by one.
//
// `Body` has `template <int Width> __device__ void run(std::int64_t first) const`, which reads and writes Width elements from
// `first` on; its accesses are 16-byte aligned when the caller says so.
#pragma once

#include <algorithm>

#include "ops/cuda/launch.h"
#include "ops/cuda/pack.cuh"

namespace plait::ops::cuda {

template <int Width, typename Body>
__global__ void __launch_bounds__(256) elementwise_kernel(std::int64_t count, Body body) {
  await_previous_kernel();
  let_next_kernel_begin();
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * Width;
  if (first + Width <= count) {
    body.template run<Width>(first);
  } else {
    for (std::int64_t i = first; i < count; ++i) body.template run<1>(i);
  }
}

// T: the narrowest element type involved; it decides how many elements one 16-byte access holds.
template <typename T, typename Body>
void elementwise(StreamRef stream, std::int64_t count, bool vectorised, const Body& body) {
  if (count == 0) return;
  constexpr int threads = 256;
  with_width<T>(vectorised, [&](auto width) {
    constexpr int elements = decltype(width)::value;
    launch(stream, {grid_size(ceil_div(count, threads * elements)), threads}, elementwise_kernel<elements, Body>, count, body);
  });
}

inline std::int64_t rows_of_piece(std::int64_t dim) { return std::max<std::int64_t>(1, (std::int64_t{1} << 31) / dim); }

// Calls f(first_row, rows) on pieces whose elements can be counted in 32 bits, for bodies that divide by `dim`.
template <typename F>
void for_row_pieces(std::int64_t rows, std::int64_t dim, F&& f) {
  const std::int64_t piece = rows_of_piece(dim);
  for (std::int64_t first = 0; first < rows; first += piece) f(first, std::min(piece, rows - first));
}

}  // namespace plait::ops::cuda
