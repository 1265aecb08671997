#include <cuda_pipeline.h>

#include <algorithm>

#include "ops/cuda/block_reduce.cuh"
#include "ops/cuda/column_sum.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/pack.cuh"
#include "ops/cuda/scale.cuh"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

template <typename T>
struct BackwardPointers {
  const T *x, *gamma, *dresidual;  // dresidual may be null
  const float *mean, *rstd;        // mean null for RMSNorm
  T* dx;
  float *dgamma, *dbeta;  // partial sums [gridDim.x, dim]; dbeta may be null
};

constexpr int most_warps = 32;
constexpr int group_rows = 2;  // rows a block works on at once: one exchange of partial sums serves both
constexpr int stages = 2;      // groups in flight: one being computed, one on its way from memory

// The slots of shared memory in which a thread keeps its packs of x, dy and dresidual; it reads only its own copies.
template <typename T, int Width>
struct Slots {
  Pack<T, Width>* packs;
  __device__ Pack<T, Width>& at(int stage, int tensor, int row) const {
    return packs[static_cast<unsigned>((stage * 3 + tensor) * group_rows + row) * blockDim.x + threadIdx.x];
  }
};

// The warp's sums of a, b, c and d in six exchanges instead of twenty: lanes 0, 8, 16 and 24 return those of a, b, c and d.
__device__ inline float warp_sum_of_four(float a, float b, float c, float d) {
  const bool upper = threadIdx.x & 16, odd_quarter = threadIdx.x & 8;
  const float first = (upper ? c : a) + __shfl_xor_sync(full_warp, upper ? a : c, 16);
  const float second = (upper ? d : b) + __shfl_xor_sync(full_warp, upper ? b : d, 16);
  float sum = (odd_quarter ? second : first) + __shfl_xor_sync(full_warp, odd_quarter ? first : second, 8);
#pragma unroll
  for (int offset = 4; offset > 0; offset /= 2) sum += __shfl_xor_sync(full_warp, sum, offset);
  return sum;
}

template <typename T, int Width>
__device__ void copy_async(Pack<T, Width>& to, const T* from) {
  if constexpr (sizeof(T) * Width == 16) {
    __pipeline_memcpy_async(&to, from, 16);
  } else {
    to = load_pack<Width>(from);
  }
}

// The gradient of y.
template <typename T>
struct WholeGradient {
  const T* dy;
  template <int Width>
  __device__ void fetch(Pack<T, Width>& to, std::int64_t at) const {
    copy_async<T, Width>(to, dy + at);
  }
  __device__ float value(std::int64_t at) const { return to_float(dy[at]); }
};

// The gradient of y given in parts: their sum, rounded to T. It is read and added at once. That takes as long as a memory
// access per group of rows, and a tensor-parallel rank owns few groups of such rows.
template <typename T>
struct GradientInParts {
  const T* dy[most_norm_addends];
  int count;
  template <int Width>
  __device__ void fetch(Pack<T, Width>& to, std::int64_t at) const {
    float sum[Width];
    load<Width>(dy[0] + at, sum);
#pragma unroll 4
    for (int k = 1; k < count; ++k) {
      float more[Width];
      load<Width>(dy[k] + at, more);
#pragma unroll
      for (int i = 0; i < Width; ++i) sum[i] += more[i];
    }
    to = make_pack<T>(sum);
  }
  __device__ float value(std::int64_t at) const {
    float sum = to_float(dy[0][at]);
    for (int k = 1; k < count; ++k) sum += to_float(dy[k][at]);
    return to_float(from_float<T>(sum));
  }
};

// A thread owns Width columns for all rows of its block, so dgamma and dbeta stay in registers until the end; needs
// dim <= blockDim.x * Width. Blocks stride over groups of rows, and copy the next group while they compute one.
template <typename T, int Width, bool Centred, typename Gradient, typename Scale>
__global__ void __launch_bounds__(1024)
    column_norm_backward_kernel(BackwardPointers<T> p, Gradient gradient, std::int64_t rows, int dim, Scale scale) {
  await_previous_kernel();
  let_next_kernel_begin();
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  __shared__ float4 exchange[2][most_warps];  // Σ dy gamma of both rows, then Σ dy gamma x̂ of both
  const Slots<T, Width> slots{reinterpret_cast<Pack<T, Width>*>(shared_bytes)};
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes, warps = blockDim.x / warp_lanes;
  const int column = static_cast<int>(threadIdx.x) * Width;
  const bool active = column < dim;
  const float inverse_dim = 1.0f / static_cast<float>(dim);
  float gamma[Width] = {}, dgamma[Width] = {}, dbeta[Width] = {};
  if (active) load<Width>(p.gamma + column, gamma);
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * group_rows;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * group_rows;

  const auto fetch = [&](std::int64_t first, int stage) {
    if (active) {
#pragma unroll
      for (int r = 0; r < group_rows; ++r) {
        if (first + r < rows) {
          const std::int64_t offset = (first + r) * dim + column;
          copy_async<T, Width>(slots.at(stage, 0, r), p.x + offset);
          gradient.template fetch<Width>(slots.at(stage, 1, r), offset);
          if (p.dresidual) copy_async<T, Width>(slots.at(stage, 2, r), p.dresidual + offset);
        }
      }
    }
    __pipeline_commit();
  };
  float next_mean[group_rows] = {}, next_rstd[group_rows] = {};
  const auto fetch_statistics = [&](std::int64_t first) {
#pragma unroll
    for (int r = 0; r < group_rows; ++r) {
      if (first + r < rows) {
        if (Centred) next_mean[r] = p.mean[first + r];
        next_rstd[r] = p.rstd[first + r];
      }
    }
  };
#pragma unroll
  for (int ahead = 0; ahead < stages - 1; ++ahead) fetch(first_row + ahead * stride, ahead);
  fetch_statistics(first_row);

  typename Scale::Largest largest;
  int stage = 0, buffer = 0;  // two exchange buffers, so that one barrier per group is enough
  for (std::int64_t first = first_row; first < rows; first += stride) {
    float mean[group_rows], rstd[group_rows];
#pragma unroll
    for (int r = 0; r < group_rows; ++r) {
      mean[r] = next_mean[r];
      rstd[r] = next_rstd[r];
    }
    fetch_statistics(first + stride);
    fetch(first + (stages - 1) * stride, stage == 0 ? stages - 1 : stage - 1);
    __pipeline_wait_prior(stages - 1);

    float sum_d[group_rows] = {}, sum_dx[group_rows] = {};
    float shift[group_rows];  // x̂ = x rstd + shift
#pragma unroll
    for (int r = 0; r < group_rows; ++r) {
      shift[r] = -mean[r] * rstd[r];
      if (active && first + r < rows) {
        const Pack<T, Width> x = slots.at(stage, 0, r), dy = slots.at(stage, 1, r);
        float with_gamma[Width], with_both[Width];
#pragma unroll
        for (int i = 0; i < Width; ++i) {
          const float d = to_float(dy.values[i]), normalised = fmaf(to_float(x.values[i]), rstd[r], shift[r]);
          dgamma[i] += d * normalised;
          dbeta[i] += d;
          with_gamma[i] = d * gamma[i];
          with_both[i] = with_gamma[i] * normalised;
        }
        if (Centred) sum_d[r] = tree_sum(with_gamma);
        sum_dx[r] = tree_sum(with_both);
      }
    }
    const float sum = warp_sum_of_four(sum_d[0], sum_d[1], sum_dx[0], sum_dx[1]);
    if (lane % 8 == 0) reinterpret_cast<float*>(&exchange[buffer][warp])[lane / 8] = sum;
    __syncthreads();
    float4 sums = exchange[buffer][0];
    for (int w = 1; w < warps; ++w) {
      const float4 other = exchange[buffer][w];
      sums.x += other.x;
      sums.y += other.y;
      sums.z += other.z;
      sums.w += other.w;
    }
#pragma unroll
    for (int r = 0; r < group_rows; ++r) {
      if (active && first + r < rows) {
        const float mean_d = (r == 0 ? sums.x : sums.y) * inverse_dim, mean_dx = (r == 0 ? sums.z : sums.w) * inverse_dim;
        const Pack<T, Width> x = slots.at(stage, 0, r), dy = slots.at(stage, 1, r);
        float values[Width] = {};
        if (p.dresidual) unpack(slots.at(stage, 2, r), values);
#pragma unroll
        for (int i = 0; i < Width; ++i) {
          const float normalised = fmaf(to_float(x.values[i]), rstd[r], shift[r]);
          values[i] += rstd[r] * (to_float(dy.values[i]) * gamma[i] - mean_d - normalised * mean_dx);
        }
        const Pack<T, Width> dx = make_pack<T>(values);
        largest.take(dx);
        store_pack(p.dx + (first + r) * dim + column, dx);
      }
    }
    buffer ^= 1;
    stage = stage == stages - 1 ? 0 : stage + 1;
  }
  if (active) {
    store<Width>(p.dgamma + static_cast<std::int64_t>(blockIdx.x) * dim + column, dgamma);
    if (p.dbeta) store<Width>(p.dbeta + static_cast<std::int64_t>(blockIdx.x) * dim + column, dbeta);
  }
  scale.finish(largest);
}

// Handles rows of any length: a block strides over rows and keeps its partial sums in the workspace, where only it writes.
template <typename T, bool Centred, typename Gradient, typename Scale>
__global__ void __launch_bounds__(1024)
    long_norm_backward_kernel(BackwardPointers<T> p, Gradient gradient, std::int64_t rows, int dim, Scale scale) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ float shared[most_warps];
  float* dgamma = p.dgamma + static_cast<std::int64_t>(blockIdx.x) * dim;
  float* dbeta = p.dbeta ? p.dbeta + static_cast<std::int64_t>(blockIdx.x) * dim : nullptr;
  typename Scale::Largest largest;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const bool is_first = row == blockIdx.x;
    const std::int64_t offset = row * dim;
    const float mean = Centred ? p.mean[row] : 0.0f, rstd = p.rstd[row];
    float sum_d = 0.0f, sum_dx = 0.0f;
    for (int i = static_cast<int>(threadIdx.x); i < dim; i += static_cast<int>(blockDim.x)) {
      const float d = gradient.value(offset + i), normalised = (to_float(p.x[offset + i]) - mean) * rstd;
      dgamma[i] = (is_first ? 0.0f : dgamma[i]) + d * normalised;
      if (dbeta) dbeta[i] = (is_first ? 0.0f : dbeta[i]) + d;
      sum_d += d * to_float(p.gamma[i]);
      sum_dx += d * to_float(p.gamma[i]) * normalised;
    }
    const float mean_d = Centred ? block_sum(sum_d, shared) / static_cast<float>(dim) : 0.0f;
    const float mean_dx = block_sum(sum_dx, shared) / static_cast<float>(dim);
    for (int i = static_cast<int>(threadIdx.x); i < dim; i += static_cast<int>(blockDim.x)) {
      const float normalised = (to_float(p.x[offset + i]) - mean) * rstd;
      const float through = rstd * (gradient.value(offset + i) * to_float(p.gamma[i]) - mean_d - normalised * mean_dx);
      const Pack<T, 1> dx{from_float<T>((p.dresidual ? to_float(p.dresidual[offset + i]) : 0.0f) + through)};
      largest.take(dx);
      p.dx[offset + i] = dx.values[0];
    }
  }
  scale.finish(largest);
}

template <typename T, bool Centred, typename Gradient, typename Scale>
void launch_backward(StreamRef stream, OpContext& context, const NormBackward& args, const Gradient& gradient,
                     const Scale& scale) {
  const std::int64_t rows = args.x.shape[0];
  const int dim = static_cast<int>(args.x.shape[1]);
  const View workspace = args.workspace ? args.workspace : context.workspace();
  BackwardPointers<T> pointers{device_pointer<T>(args.x),         device_pointer<T>(args.gamma),
                               device_pointer<T>(args.dresidual), device_pointer<float>(args.mean),
                               device_pointer<float>(args.rstd),  device_pointer<T>(args.dx),
                               device_pointer<float>(workspace),  nullptr};
  const bool vectorised = dim % pack_width<T> == 0 &&
                          aligned_16({args.x.data, args.gamma.data, args.dresidual.data, args.dx.data}) &&
                          std::all_of(args.dy.begin(), args.dy.end(), [](const View& dy) { return aligned_16({dy.data}); });
  const std::int64_t most_parts = static_cast<std::int64_t>(workspace.bytes() / (2 * sizeof(float))) / dim;
  require(most_parts >= 1, "norm_backward: the workspace is smaller than two rows");

  const auto launch_and_finish = [&](auto kernel, std::int64_t threads, std::int64_t shared_bytes, std::int64_t groups) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
    const std::int64_t resident = resident_blocks(stream, kernel, threads, static_cast<std::size_t>(shared_bytes));
    const std::int64_t parts = std::min({groups, resident, most_parts});
    if (args.dbeta) pointers.dbeta = pointers.dgamma + parts * dim;
    launch(stream, {grid_size(parts), static_cast<unsigned>(threads), static_cast<std::size_t>(shared_bytes)}, kernel, pointers,
           gradient, rows, dim, scale);
    finish_column_sums(stream, pointers.dgamma, parts, args.dgamma, args.dbeta, args.accumulate);
  };
  with_width_of<T, Scale>(vectorised, [&](auto w) {
    constexpr int width = decltype(w)::value;
    const std::int64_t threads = round_up(ceil_div(dim, width), warp_lanes);
    if (threads <= 1024) {
      const std::int64_t shared_bytes = threads * stages * 3 * group_rows * static_cast<std::int64_t>(sizeof(T)) * width;
      constexpr std::int64_t exchange_bytes = sizeof(float4) * 2 * most_warps;
      if (shared_bytes + exchange_bytes <= most_shared_bytes(stream.device())) {
        return launch_and_finish(column_norm_backward_kernel<T, width, Centred, Gradient, Scale>, threads, shared_bytes,
                                 ceil_div(rows, group_rows));
      }
    }
    launch_and_finish(long_norm_backward_kernel<T, Centred, Gradient, Scale>, 1024, 0, rows);
  });
}

}  // namespace

void norm_backward(StreamRef stream, OpContext& context, const NormBackward& args) {
  with_type(args.x.dtype, [&](auto t) {
    using T = decltype(t);
    const auto run = [&](const auto& gradient) {
      with_scale<T>(stream, context, args.scale, [&](const auto& scale) {
        if (args.kind == NormKind::layer_norm) {
          launch_backward<T, true>(stream, context, args, gradient, scale);
        } else {
          launch_backward<T, false>(stream, context, args, gradient, scale);
        }
      });
    };
    if (args.dy.size() == 1) return run(WholeGradient<T>{device_pointer<T>(args.dy.front())});
    GradientInParts<T> parts{};
    parts.count = static_cast<int>(args.dy.size());
    for (std::size_t k = 0; k < args.dy.size(); ++k) parts.dy[k] = device_pointer<T>(args.dy[k]);
    run(parts);
  });
}

}  // namespace plait::ops::cuda
