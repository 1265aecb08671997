#include <algorithm>

#include "ops/cuda/block_reduce.cuh"
#include "ops/cuda/column_sum.cuh"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/pack.cuh"

namespace plait::ops::cuda {
namespace {

template <typename T> struct BackwardPointers {
  const T *x, *gamma, *dy, *dresidual;  // dresidual may be null
  const float *mean, *rstd;             // mean null for RMSNorm
  T* dx;
  float *dgamma, *dbeta;  // partial sums [gridDim.x, dim]; dbeta may be null
};

constexpr int most_warps = 32;

// Rows a block works on at once: one exchange of partial sums serves all of them, and their loads are in flight together.
template <int MostThreads> inline constexpr int rows_at_once = MostThreads <= 512 ? 2 : 1;

// A thread owns Width columns for all rows of its block, so dgamma and dbeta stay in registers until the end; needs
// dim <= blockDim.x * Width. Blocks stride over groups of rows.
template <typename T, int Width, bool Centred, int MostThreads>
__global__ void __launch_bounds__(MostThreads, MostThreads <= 256 ? 2 : 1) column_norm_backward_kernel(BackwardPointers<T> p, std::int64_t rows, int dim) {
  constexpr int row_group = rows_at_once<MostThreads>;
  __shared__ float shared[2][most_warps][2 * row_group];
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes, warps = blockDim.x / warp_lanes;
  const int column = static_cast<int>(threadIdx.x) * Width;
  const bool active = column < dim;
  const float inverse_dim = 1.0f / static_cast<float>(dim);
  float gamma[Width] = {}, dgamma[Width] = {}, dbeta[Width] = {};
  if (active) load<Width>(p.gamma + column, gamma);
  int buffer = 0;  // alternates, so that one barrier per group is enough
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * row_group; first < rows;
       first += static_cast<std::int64_t>(gridDim.x) * row_group) {
    Pack<T, Width> x[row_group], dy[row_group], dresidual[row_group];
    float mean[row_group], rstd[row_group];
#pragma unroll
    for (int r = 0; r < row_group; ++r) {
      const bool present = active && first + r < rows;
      const std::int64_t offset = (first + r) * dim + column;
      if (present) {
        x[r] = load_pack<Width>(p.x + offset);
        dy[r] = load_pack<Width>(p.dy + offset);
        if (p.dresidual) dresidual[r] = load_pack<Width>(p.dresidual + offset);
      }
      if (first + r < rows) {
        mean[r] = Centred ? p.mean[first + r] : 0.0f;
        rstd[r] = p.rstd[first + r];
      }
    }
    float sums[2 * row_group];  // Σ dy gamma and Σ dy gamma x̂ of each row
#pragma unroll
    for (int r = 0; r < row_group; ++r) {
      float sum_d = 0.0f, sum_dx = 0.0f;
      if (active && first + r < rows) {
#pragma unroll
        for (int i = 0; i < Width; ++i) {
          const float d = to_float(dy[r].values[i]), normalised = (to_float(x[r].values[i]) - mean[r]) * rstd[r];
          dgamma[i] += d * normalised;
          dbeta[i] += d;
          sum_d += d * gamma[i];
          sum_dx += d * gamma[i] * normalised;
        }
      }
      sums[2 * r] = Centred ? warp_sum(sum_d) : 0.0f;
      sums[2 * r + 1] = warp_sum(sum_dx);
    }
    if (lane == 0) {
#pragma unroll
      for (int k = 0; k < 2 * row_group; ++k) shared[buffer][warp][k] = sums[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 2 * row_group; ++k) sums[k] = 0.0f;
    for (int w = 0; w < warps; ++w) {
#pragma unroll
      for (int k = 0; k < 2 * row_group; ++k) sums[k] += shared[buffer][w][k];
    }
    buffer ^= 1;
#pragma unroll
    for (int r = 0; r < row_group; ++r) {
      if (active && first + r < rows) {
        const float mean_d = sums[2 * r] * inverse_dim, mean_dx = sums[2 * r + 1] * inverse_dim;
        float values[Width] = {};
        if (p.dresidual) unpack(dresidual[r], values);
#pragma unroll
        for (int i = 0; i < Width; ++i) {
          const float normalised = (to_float(x[r].values[i]) - mean[r]) * rstd[r];
          values[i] += rstd[r] * (to_float(dy[r].values[i]) * gamma[i] - mean_d - normalised * mean_dx);
        }
        store<Width>(p.dx + (first + r) * dim + column, values);
      }
    }
  }
  if (active) {
    store<Width>(p.dgamma + static_cast<std::int64_t>(blockIdx.x) * dim + column, dgamma);
    if (p.dbeta) store<Width>(p.dbeta + static_cast<std::int64_t>(blockIdx.x) * dim + column, dbeta);
  }
}

// Rows of any length: a block strides over rows and keeps its partial sums in the workspace, where only it writes.
template <typename T, bool Centred>
__global__ void __launch_bounds__(1024) long_norm_backward_kernel(BackwardPointers<T> p, std::int64_t rows, int dim) {
  __shared__ float shared[most_warps];
  float* dgamma = p.dgamma + static_cast<std::int64_t>(blockIdx.x) * dim;
  float* dbeta = p.dbeta ? p.dbeta + static_cast<std::int64_t>(blockIdx.x) * dim : nullptr;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const bool is_first = row == blockIdx.x;
    const std::int64_t offset = row * dim;
    const float mean = Centred ? p.mean[row] : 0.0f, rstd = p.rstd[row];
    float sum_d = 0.0f, sum_dx = 0.0f;
    for (int i = static_cast<int>(threadIdx.x); i < dim; i += static_cast<int>(blockDim.x)) {
      const float d = to_float(p.dy[offset + i]), normalised = (to_float(p.x[offset + i]) - mean) * rstd;
      dgamma[i] = (is_first ? 0.0f : dgamma[i]) + d * normalised;
      if (dbeta) dbeta[i] = (is_first ? 0.0f : dbeta[i]) + d;
      sum_d += d * to_float(p.gamma[i]);
      sum_dx += d * to_float(p.gamma[i]) * normalised;
    }
    const float mean_d = Centred ? block_sum(sum_d, shared) / static_cast<float>(dim) : 0.0f;
    const float mean_dx = block_sum(sum_dx, shared) / static_cast<float>(dim);
    for (int i = static_cast<int>(threadIdx.x); i < dim; i += static_cast<int>(blockDim.x)) {
      const float normalised = (to_float(p.x[offset + i]) - mean) * rstd;
      const float gradient = rstd * (to_float(p.dy[offset + i]) * to_float(p.gamma[i]) - mean_d - normalised * mean_dx);
      p.dx[offset + i] = from_float<T>((p.dresidual ? to_float(p.dresidual[offset + i]) : 0.0f) + gradient);
    }
  }
}

template <typename T, bool Centred>
void launch_backward(StreamRef stream, OpContext& context, const NormBackward& args) {
  const std::int64_t rows = args.x.shape[0];
  const int dim = static_cast<int>(args.x.shape[1]);
  const View workspace = context.workspace();
  BackwardPointers<T> pointers{device_pointer<T>(args.x),        device_pointer<T>(args.gamma),    device_pointer<T>(args.dy),
                               device_pointer<T>(args.dresidual), device_pointer<float>(args.mean), device_pointer<float>(args.rstd),
                               device_pointer<T>(args.dx),        device_pointer<float>(workspace), nullptr};
  const bool vectorised = dim % pack_width<T> == 0 &&
                          aligned_16({args.x.data, args.gamma.data, args.dy.data, args.dresidual.data, args.dx.data});
  const std::int64_t most_parts = static_cast<std::int64_t>(workspace.bytes() / (2 * sizeof(float))) / dim;
  require(most_parts >= 1, "norm_backward: the workspace is smaller than two rows");

  const auto launch = [&](auto kernel, std::int64_t threads, std::int64_t groups) {
    int blocks_per_multiprocessor = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_multiprocessor, kernel, static_cast<int>(threads), 0));
    const std::int64_t resident = std::int64_t{blocks_per_multiprocessor} * multiprocessors(stream.device());
    const std::int64_t parts = std::min({groups, resident, most_parts});
    if (args.dbeta) pointers.dbeta = pointers.dgamma + parts * dim;
    kernel<<<grid_size(parts), static_cast<unsigned>(threads), 0, native(stream)>>>(pointers, rows, dim);
    check_launch();
    finish_column_sums(stream, pointers.dgamma, parts, args.dgamma, args.dbeta, args.accumulate);
  };
  with_width<T>(vectorised, [&](auto w) {
    constexpr int width = decltype(w)::value;
    const std::int64_t threads = round_up(ceil_div(dim, width), warp_lanes), pairs = ceil_div(rows, 2);
    if (threads <= 256) {  // few threads leave each of them more registers for loads in flight
      launch(column_norm_backward_kernel<T, width, Centred, 256>, threads, pairs);
    } else if (threads <= 512) {
      launch(column_norm_backward_kernel<T, width, Centred, 512>, threads, pairs);
    } else if (threads <= 1024) {
      launch(column_norm_backward_kernel<T, width, Centred, 1024>, threads, rows);
    } else {
      launch(long_norm_backward_kernel<T, Centred>, 1024, rows);
    }
  });
}

}  // namespace

void norm_backward(StreamRef stream, OpContext& context, const NormBackward& args) {
  with_type(args.x.dtype, [&](auto t) {
    using T = decltype(t);
    if (args.kind == NormKind::layer_norm) {
      launch_backward<T, true>(stream, context, args);
    } else {
      launch_backward<T, false>(stream, context, args);
    }
  });
}

}  // namespace plait::ops::cuda
