#include "ops/cuda/block_reduce.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/pack.cuh"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

template <typename T>
struct ForwardPointers {
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
template <typename T, int Width>
__device__ Pack<T, Width> add_packs(const Pack<T, Width>& x, const Pack<T, Width>& delta) {
  float a[Width], b[Width];
  unpack(x, a);
  unpack(delta, b);
#pragma unroll
  for (int i = 0; i < Width; ++i) a[i] += b[i];
  return make_pack<T>(a);
}

constexpr int warps_per_block = 4;

// One warp per row, the row in registers: dim <= 32 * Packs * Width.
template <typename T, int Packs, bool Centred, bool Adds>
__global__ void __launch_bounds__(warps_per_block* warp_lanes, Adds         ? 4
                                                               : Packs <= 3 ? 12
                                                               : Packs <= 7 ? 8
                                                                            : 4)
    warp_norm_kernel(ForwardPointers<T> p, std::int64_t rows, int dim, float epsilon) {
  constexpr int width = pack_width<T>;
  const int lane = threadIdx.x % warp_lanes;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps_per_block + threadIdx.x / warp_lanes;
  if (row >= rows) return;
  const std::int64_t offset = row * dim;
  Pack<T, width> packs[Packs];
#pragma unroll
  for (int k = 0; k < Packs; ++k) {
    const int column = (k * warp_lanes + lane) * width;
    if (column < dim) packs[k] = load_pack<width>(p.x + offset + column);
  }
  if constexpr (Adds) {
    Pack<T, width> deltas[Packs];
#pragma unroll
    for (int k = 0; k < Packs; ++k) {
      const int column = (k * warp_lanes + lane) * width;
      if (column < dim) deltas[k] = load_pack<width>(p.delta + offset + column);
    }
#pragma unroll
    for (int k = 0; k < Packs; ++k) {
      const int column = (k * warp_lanes + lane) * width;
      if (column < dim) {
        packs[k] = add_packs(packs[k], deltas[k]);
        store_pack(p.residual + offset + column, packs[k]);
      }
    }
  }
  float mean = 0.0f;
  if constexpr (Centred) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < Packs; ++k) {
      if ((k * warp_lanes + lane) * width < dim) {
        float values[width];
        unpack(packs[k], values);
        sum += tree_sum(values);
      }
    }
    mean = warp_sum(sum) / static_cast<float>(dim);
  }
  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < Packs; ++k) {
    if ((k * warp_lanes + lane) * width < dim) {
      forget_unpacked(packs[k]);
      float values[width];
      unpack(packs[k], values);
#pragma unroll
      for (int i = 0; i < width; ++i) values[i] = (values[i] - mean) * (values[i] - mean);
      squares += tree_sum(values);
    }
  }
  const float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(dim) + epsilon);
#pragma unroll
  for (int k = 0; k < Packs; ++k) {
    const int column = (k * warp_lanes + lane) * width;
    if (column < dim) {
      forget_unpacked(packs[k]);
      normalise<T, width>(packs[k], mean, rstd, p.gamma + column, p.beta ? p.beta + column : nullptr, p.y + offset + column);
    }
  }
  if (lane == 0) {
    if constexpr (Centred) p.mean[row] = mean;
    p.rstd[row] = rstd;
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

template <typename T, int Packs, bool Centred>
void launch_warp_norm(StreamRef stream, const ForwardPointers<T>& pointers, std::int64_t rows, int dim, float epsilon) {
  const auto kernel = pointers.delta ? warp_norm_kernel<T, Packs, Centred, true> : warp_norm_kernel<T, Packs, Centred, false>;
  kernel<<<grid_size(ceil_div(rows, warps_per_block)), warps_per_block * warp_lanes, 0, native(stream)>>>(pointers, rows, dim,
                                                                                                          epsilon);
}

template <typename T, bool Centred>
void launch_norm(StreamRef stream, const ForwardPointers<T>& pointers, std::int64_t rows, int dim, bool vectorised,
                 float epsilon) {
  const std::int64_t packs = ceil_div(dim, warp_lanes * pack_width<T>);
  if (vectorised && packs <= 1) {
    launch_warp_norm<T, 1, Centred>(stream, pointers, rows, dim, epsilon);
  } else if (vectorised && packs <= 3) {
    launch_warp_norm<T, 3, Centred>(stream, pointers, rows, dim, epsilon);
  } else if (vectorised && packs <= 7) {
    launch_warp_norm<T, 7, Centred>(stream, pointers, rows, dim, epsilon);
  } else if (vectorised && packs <= 16) {
    launch_warp_norm<T, 16, Centred>(stream, pointers, rows, dim, epsilon);
  } else {
    with_width<T>(vectorised, [&](auto w) {
      block_norm_kernel<T, decltype(w)::value, Centred>
          <<<grid_size(rows), block_threads, 0, native(stream)>>>(pointers, dim, epsilon);
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
    const ForwardPointers<T> pointers{device_pointer<T>(args.x),        device_pointer<T>(args.delta),
                                      device_pointer<T>(args.gamma),    device_pointer<T>(args.beta),
                                      device_pointer<T>(args.residual), device_pointer<T>(args.y),
                                      device_pointer<float>(args.mean), device_pointer<float>(args.rstd)};
    const bool vectorised = dim % pack_width<T> == 0 && aligned_16({args.x.data, args.delta.data, args.gamma.data,
                                                                    args.beta.data, args.residual.data, args.y.data});
    if (args.kind == NormKind::layer_norm) {
      launch_norm<T, true>(stream, pointers, rows, dim, vectorised, args.epsilon);
    } else {
      launch_norm<T, false>(stream, pointers, rows, dim, vectorised, args.epsilon);
    }
  });
}

}  // namespace plait::ops::cuda
