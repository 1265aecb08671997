#include <type_traits>
#include <variant>

#include "ops/cuda/block_reduce.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/pack.cuh"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

template <typename T>
struct ForwardPointers {
  const T *x, *gamma, *beta;  // beta may be null
  T* y;
  float *mean, *rstd;
};

// What is added up before the norm.
template <typename T>
struct Addends {
  const T* x[most_norm_addends];
  int count;
  const T* bias;  // may be null
  T* sum;
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

// Width columns of the sum, rounded to T: what the backward pass will read.
template <typename T, int Width>
__device__ Pack<T, Width> add_up(const Addends<T>& addends, std::int64_t offset, int column) {
  float sum[Width];
  load<Width>(addends.x[0] + offset + column, sum);
#pragma unroll 4
  for (int k = 1; k < addends.count; ++k) {
    float more[Width];
    load<Width>(addends.x[k] + offset + column, more);
#pragma unroll
    for (int i = 0; i < Width; ++i) sum[i] += more[i];
  }
  if (addends.bias) {
    float bias[Width];
    load<Width>(addends.bias + column, bias);
#pragma unroll
    for (int i = 0; i < Width; ++i) sum[i] += bias[i];
  }
  return make_pack<T>(sum);
}

constexpr int warps_per_block = 4;

// One warp per row, the row in registers: dim <= 32 * Packs * Width.
template <typename T, int Packs, bool Centred>
__global__ void __launch_bounds__(warps_per_block* warp_lanes, Packs <= 3   ? 12
                                                               : Packs <= 7 ? 8
                                                                            : 4)
    warp_norm_kernel(ForwardPointers<T> p, std::int64_t rows, int dim, float epsilon) {
  await_previous_kernel();
  let_next_kernel_begin();
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

// One block per row of any length; the row is read again from cache for each pass. Where there is something to add, p.x is the
// sum.
template <typename T, int Width, bool Centred, bool Adds>
__global__ void __launch_bounds__(block_threads)
    block_norm_kernel(ForwardPointers<T> p, std::conditional_t<Adds, Addends<T>, std::monostate> addends, int dim,
                      float epsilon) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ float shared[block_threads / warp_lanes];
  const std::int64_t row = blockIdx.x, offset = row * dim;
  const T* x = p.x + offset;
  const int first = static_cast<int>(threadIdx.x) * Width;
  constexpr int stride = block_threads * Width;
  if constexpr (Adds) {  // each thread reads back only what it wrote
    for (int i = first; i < dim; i += stride) store_pack(addends.sum + offset + i, add_up<T, Width>(addends, offset, i));
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
  launch(stream, {grid_size(ceil_div(rows, warps_per_block)), warps_per_block * warp_lanes},
         warp_norm_kernel<T, Packs, Centred>, pointers, rows, dim, epsilon);
}

template <typename T, bool Centred>
void launch_norm(StreamRef stream, const ForwardPointers<T>& pointers, const Addends<T>& addends, std::int64_t rows, int dim,
                 bool vectorised, float epsilon) {
  const std::int64_t packs = ceil_div(dim, warp_lanes * pack_width<T>);
  if (addends.sum) {
    with_width<T>(vectorised, [&](auto w) {
      launch(stream, {grid_size(rows), block_threads}, block_norm_kernel<T, decltype(w)::value, Centred, true>, pointers,
             addends, dim, epsilon);
    });
  } else if (vectorised && packs <= 1) {
    launch_warp_norm<T, 1, Centred>(stream, pointers, rows, dim, epsilon);
  } else if (vectorised && packs <= 3) {
    launch_warp_norm<T, 3, Centred>(stream, pointers, rows, dim, epsilon);
  } else if (vectorised && packs <= 7) {
    launch_warp_norm<T, 7, Centred>(stream, pointers, rows, dim, epsilon);
  } else if (vectorised && packs <= 16) {
    launch_warp_norm<T, 16, Centred>(stream, pointers, rows, dim, epsilon);
  } else {
    with_width<T>(vectorised, [&](auto w) {
      launch(stream, {grid_size(rows), block_threads}, block_norm_kernel<T, decltype(w)::value, Centred, false>, pointers,
             std::monostate{}, dim, epsilon);
    });
  }
}

}  // namespace

void norm_forward(StreamRef stream, const NormForward& args) {
  const std::int64_t rows = args.x.front().shape[0];
  const int dim = static_cast<int>(args.x.front().shape[1]);
  if (rows == 0) return;
  with_type(args.x.front().dtype, [&](auto t) {
    using T = decltype(t);
    const View& input = args.residual ? args.residual : args.x.front();
    const ForwardPointers<T> pointers{device_pointer<T>(input),         device_pointer<T>(args.gamma),
                                      device_pointer<T>(args.beta),     device_pointer<T>(args.y),
                                      device_pointer<float>(args.mean), device_pointer<float>(args.rstd)};
    Addends<T> addends{{}, 0, device_pointer<T>(args.bias), device_pointer<T>(args.residual)};
    bool aligned = aligned_16({input.data, args.bias.data, args.gamma.data, args.beta.data, args.y.data});
    for (const View& x : args.x) {
      addends.x[addends.count++] = device_pointer<T>(x);
      aligned = aligned && aligned_16({x.data});
    }
    const bool vectorised = dim % pack_width<T> == 0 && aligned;
    if (args.kind == NormKind::layer_norm) {
      launch_norm<T, true>(stream, pointers, addends, rows, dim, vectorised, args.epsilon);
    } else {
      launch_norm<T, false>(stream, pointers, addends, rows, dim, vectorised, args.epsilon);
    }
  });
}

}  // namespace plait::ops::cuda
