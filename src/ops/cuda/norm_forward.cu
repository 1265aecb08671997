#include <cuda_pipeline.h>

#include <algorithm>

#include "ops/cuda/block_reduce.cuh"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/pack.cuh"

namespace plait::ops::cuda {
namespace {

template <typename T> struct ForwardPointers {
  const T *x, *delta, *gamma, *beta;  // delta and beta may be null
  T *residual, *y;
  float *mean, *rstd;
};

template <typename T, int Width>
__device__ void normalise(const Pack<T, Width>& pack, float mean, float rstd, const T* gamma, const T* beta, T* y) {
  float values[Width], g[Width], b[Width] = {};
  unpack(pack, values);
  load<Width>(gamma, g);
  if (beta) load<Width>(beta, b);
#pragma unroll
  for (int i = 0; i < Width; ++i) values[i] = (values[i] - mean) * rstd * g[i] + b[i];
  store<Width>(y, values);
}

// x + delta, rounded to T: what the backward pass will read.
template <typename T, int Width> __device__ Pack<T, Width> add_packs(const Pack<T, Width>& x, const Pack<T, Width>& delta) {
  float a[Width], b[Width];
  unpack(x, a);
  unpack(delta, b);
#pragma unroll
  for (int i = 0; i < Width; ++i) a[i] += b[i];
  return make_pack<T>(a);
}

constexpr int warps_per_block = 4;
constexpr int stages = 3;  // rows of a warp in work: one being computed, two on their way from memory

// One warp per row. Warps stride over the rows and copy two rows ahead into shared memory, where a lane reads back only what it
// copied (or wrote) itself. Needs rows aligned to 16 bytes.
template <typename T, bool Centred, bool Adds>
__global__ void __launch_bounds__(warps_per_block* warp_lanes) warp_norm_kernel(ForwardPointers<T> p, std::int64_t rows, int dim, float epsilon) {
  constexpr int width = pack_width<T>;
  constexpr int stride = warp_lanes * width;
  constexpr int tensors = Adds ? 2 : 1;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const int warp = threadIdx.x / warp_lanes, first = static_cast<int>(threadIdx.x) % warp_lanes * width;
  T* ring = reinterpret_cast<T*>(shared_bytes) + warp * stages * tensors * dim;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * warps_per_block + warp;
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * warps_per_block;

  const auto fetch = [&](std::int64_t row, int stage) {
    if (row < rows) {
      T* to = ring + stage * tensors * dim;
      for (int i = first; i < dim; i += stride) {
        __pipeline_memcpy_async(to + i, p.x + row * dim + i, 16);
        if (Adds) __pipeline_memcpy_async(to + dim + i, p.delta + row * dim + i, 16);
      }
    }
    __pipeline_commit();
  };
#pragma unroll
  for (int ahead = 0; ahead < stages - 1; ++ahead) fetch(first_row + ahead * warps, ahead);

  int stage = 0;
  for (std::int64_t row = first_row; row < rows; row += warps) {
    fetch(row + (stages - 1) * warps, stage == 0 ? stages - 1 : stage - 1);
    __pipeline_wait_prior(stages - 1);
    T* x = ring + stage * tensors * dim;
    const std::int64_t offset = row * dim;
    float sum = 0.0f;
    if constexpr (Centred || Adds) {
#pragma unroll 4
      for (int i = first; i < dim; i += stride) {
        Pack<T, width> pack = load_pack<width>(x + i);
        if constexpr (Adds) {
          pack = add_packs(pack, load_pack<width>(x + dim + i));
          store_pack(x + i, pack);
          store_pack(p.residual + offset + i, pack);
        }
#pragma unroll
        for (int j = 0; j < width; ++j) sum += to_float(pack.values[j]);
      }
    }
    const float mean = Centred ? warp_sum(sum) / static_cast<float>(dim) : 0.0f;
    float squares = 0.0f;
#pragma unroll 4
    for (int i = first; i < dim; i += stride) {
      float values[width];
      load<width>(x + i, values);
#pragma unroll
      for (int j = 0; j < width; ++j) squares += (values[j] - mean) * (values[j] - mean);
    }
    const float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(dim) + epsilon);
#pragma unroll 4
    for (int i = first; i < dim; i += stride) {
      normalise<T, width>(load_pack<width>(x + i), mean, rstd, p.gamma + i, p.beta ? p.beta + i : nullptr, p.y + offset + i);
    }
    if (first == 0) {
      if constexpr (Centred) p.mean[row] = mean;
      p.rstd[row] = rstd;
    }
    stage = stage == stages - 1 ? 0 : stage + 1;
  }
}

constexpr int block_threads = 256;

// One block per row of any length; the row is read again from cache for each pass.
template <typename T, int Width, bool Centred>
__global__ void __launch_bounds__(block_threads) block_norm_kernel(ForwardPointers<T> p, int dim, float epsilon) {
  __shared__ float shared[block_threads / warp_lanes];
  const std::int64_t row = blockIdx.x, offset = row * dim;
  const T* x = p.x + offset;
  const int first = static_cast<int>(threadIdx.x) * Width;
  constexpr int stride = block_threads * Width;
  if (p.delta) {
    T* residual = p.residual + offset;
    for (int i = first; i < dim; i += stride) {
      store_pack(residual + i, add_packs(load_pack<Width>(x + i), load_pack<Width>(p.delta + offset + i)));
    }
    x = residual;  // each thread reads back only what it wrote
  }
  float mean = 0.0f;
  if constexpr (Centred) {
    float sum = 0.0f;
    for (int i = first; i < dim; i += stride) {
      float values[Width];
      load<Width>(x + i, values);
#pragma unroll
      for (int j = 0; j < Width; ++j) sum += values[j];
    }
    mean = block_sum(sum, shared) / static_cast<float>(dim);
  }
  float squares = 0.0f;
  for (int i = first; i < dim; i += stride) {
    float values[Width];
    load<Width>(x + i, values);
#pragma unroll
    for (int j = 0; j < Width; ++j) squares += (values[j] - mean) * (values[j] - mean);
  }
  const float rstd = 1.0f / sqrtf(block_sum(squares, shared) / static_cast<float>(dim) + epsilon);
  for (int i = first; i < dim; i += stride) {
    normalise<T, Width>(load_pack<Width>(x + i), mean, rstd, p.gamma + i, p.beta ? p.beta + i : nullptr, p.y + offset + i);
  }
  if (threadIdx.x == 0) {
    if constexpr (Centred) p.mean[row] = mean;
    p.rstd[row] = rstd;
  }
}

template <typename T, bool Centred>
void launch_norm(StreamRef stream, const ForwardPointers<T>& pointers, std::int64_t rows, int dim, bool vectorised, float epsilon) {
  const std::int64_t shared_bytes = std::int64_t{warps_per_block} * stages * (pointers.delta ? 2 : 1) * dim * static_cast<std::int64_t>(sizeof(T));
  if (vectorised && shared_bytes <= most_shared_bytes(stream.device())) {
    const auto kernel = pointers.delta ? warp_norm_kernel<T, Centred, true> : warp_norm_kernel<T, Centred, false>;
    constexpr int threads = warps_per_block * warp_lanes;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
    int blocks_per_multiprocessor = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_multiprocessor, kernel, threads, static_cast<std::size_t>(shared_bytes)));
    const std::int64_t resident = std::int64_t{blocks_per_multiprocessor} * multiprocessors(stream.device());
    const std::int64_t blocks = std::min(resident, ceil_div(rows, warps_per_block));
    kernel<<<grid_size(blocks), threads, static_cast<std::size_t>(shared_bytes), native(stream)>>>(pointers, rows, dim, epsilon);
  } else {
    with_width<T>(vectorised, [&](auto w) {
      block_norm_kernel<T, decltype(w)::value, Centred><<<grid_size(rows), block_threads, 0, native(stream)>>>(pointers, dim, epsilon);
    });
  }
  check_launch();
}

}  // namespace

void norm_forward(StreamRef stream, const NormForward& args) {
  const std::int64_t rows = args.x.shape[0];
  const int dim = static_cast<int>(args.x.shape[1]);
  if (rows == 0) return;
  with_type(args.x.dtype, [&](auto t) {
    using T = decltype(t);
    const ForwardPointers<T> pointers{device_pointer<T>(args.x),        device_pointer<T>(args.delta), device_pointer<T>(args.gamma),
                                      device_pointer<T>(args.beta),     device_pointer<T>(args.residual), device_pointer<T>(args.y),
                                      device_pointer<float>(args.mean), device_pointer<float>(args.rstd)};
    const bool vectorised = dim % pack_width<T> == 0 && aligned_16({args.x.data, args.delta.data, args.gamma.data, args.beta.data,
                                                                    args.residual.data, args.y.data});
    if (args.kind == NormKind::layer_norm) {
      launch_norm<T, true>(stream, pointers, rows, dim, vectorised, args.epsilon);
    } else {
      launch_norm<T, false>(stream, pointers, rows, dim, vectorised, args.epsilon);
    }
  });
}

}  // namespace plait::ops::cuda
