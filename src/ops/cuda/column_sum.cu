#include "ops/cuda/column_sum.h"

#include <algorithm>

#include "ops/cuda/block_reduce.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/pack.cuh"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

constexpr int warps = 8;
constexpr int rows_in_flight = 4;
constexpr int group_rows = warps * rows_in_flight;

// Block (x, y) sums 32 * Width columns over the groups of rows y, y + gridDim.y, ...: a lane owns Width columns, a warp every
// eighth row of a group.
template <typename T, int Width>
__global__ void __launch_bounds__(warps* warp_lanes)
    column_sum_kernel(const T* x, std::int64_t rows, std::int64_t columns, float* partial) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ float shared[warps][warp_lanes * Width];
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * warp_lanes + lane) * Width;
  const std::int64_t groups = (rows + group_rows - 1) / group_rows;
  float sums[Width] = {};
  if (column < columns) {
    for (std::int64_t group = blockIdx.y; group < groups; group += gridDim.y) {
      const std::int64_t first = group * group_rows + warp;
      Pack<T, Width> packs[rows_in_flight];
#pragma unroll
      for (int k = 0; k < rows_in_flight; ++k) {
        if (first + k * warps < rows) packs[k] = load_pack<Width>(x + (first + k * warps) * columns + column);
      }
#pragma unroll
      for (int k = 0; k < rows_in_flight; ++k) {
        if (first + k * warps < rows) {
#pragma unroll
          for (int j = 0; j < Width; ++j) sums[j] += to_float(packs[k].values[j]);
        }
      }
    }
  }
#pragma unroll
  for (int j = 0; j < Width; ++j) shared[warp][j * warp_lanes + lane] = sums[j];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < warp_lanes * Width; i += warps * warp_lanes) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < warps; ++w) sum += shared[w][i];
    const std::int64_t to = (static_cast<std::int64_t>(blockIdx.x) * warp_lanes + i % warp_lanes) * Width + i / warp_lanes;
    if (to < columns) partial[blockIdx.y * columns + to] = sum;
  }
}

constexpr int finish_rows = 32;

// A block owns 32 columns of one output; its 32 warps take parts in turn, then one tree adds the warps' sums.
template <typename G>
__global__ void __launch_bounds__(warp_lanes* finish_rows)
    finish_kernel(const float* partial, std::int64_t parts, std::int64_t columns, G* first, G* second, bool accumulate) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ float shared[finish_rows][warp_lanes + 1];
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * warp_lanes + lane;
  G* out = blockIdx.y == 0 ? first : second;
  partial += blockIdx.y * parts * columns;
  float sum = 0.0f;
  if (column < columns) {
#pragma unroll 8
    for (std::int64_t part = warp; part < parts; part += finish_rows) sum += partial[part * columns + column];
  }
  shared[warp][lane] = sum;
  __syncthreads();
  // Transposed: warp w now adds the 32 sums of column w.
  const float total = warp_sum(shared[lane][warp]);
  const std::int64_t to = static_cast<std::int64_t>(blockIdx.x) * warp_lanes + warp;
  if (lane == 0 && to < columns) out[to] = from_float<G>(accumulate ? to_float(out[to]) + total : total);
}

}  // namespace

void finish_column_sums(StreamRef stream, const float* partial, std::int64_t parts, View first, View second, bool accumulate) {
  const std::int64_t columns = first.elements();
  with_type(first.dtype, [&](auto g) {
    using G = decltype(g);
    const dim3 grid(grid_size(ceil_div(columns, warp_lanes)), second ? 2 : 1);
    launch(stream, {grid, warp_lanes * finish_rows}, finish_kernel<G>, partial, parts, columns, device_pointer<G>(first),
           device_pointer<G>(second), accumulate);
  });
}

void sum_rows(StreamRef stream, OpContext& context, View x, const RowSums& sums) {
  const std::int64_t rows = x.shape[0], columns = x.shape[1];
  float* partial = device_pointer<float>(context.workspace());
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    with_width<T>(columns % pack_width<T> == 0 && aligned_16({x.data}), [&](auto w) {
      constexpr int width = decltype(w)::value;
      const std::int64_t column_blocks = ceil_div(columns, warp_lanes * width);
      const std::int64_t resident = resident_blocks(stream, column_sum_kernel<T, width>, warps * warp_lanes);
      const std::int64_t fitting = static_cast<std::int64_t>(context.workspace().bytes() / sizeof(float)) / columns;
      require(fitting >= 1, "sum_rows: the workspace is smaller than one row");
      const std::int64_t parts = std::min(
          {std::max<std::int64_t>(resident / column_blocks, 1), ceil_div(rows, group_rows), fitting, std::int64_t{65535}});
      const dim3 grid(grid_size(column_blocks), static_cast<unsigned>(parts));
      launch(stream, {grid, warps * warp_lanes}, column_sum_kernel<T, width>, device_pointer<T>(x), rows, columns, partial);
      finish_column_sums(stream, partial, parts, sums.out, {}, sums.accumulate);
    });
  });
}

}  // namespace plait::ops::cuda
