#include <type_traits>
#include <variant>

#include "ops/cuda/block_reduce.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/pack.cuh"
#include "ops/cuda/scale.cuh"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

template <typename T>
struct ForwardPointers {
  const T *x, *gamma, *beta;  // beta may be null
  T* y;
  float *mean, *rstd;
};

// The tensors added up before the norm.
template <typename T>
struct Addends {
  const T* x[most_norm_addends];
  int count;
  const T* bias;  // may be null
  T* sum;
};

template <typename T, int Width, typename Largest>
__device__ void normalise(const Pack<T, Width>& pack, float mean, float rstd, const T* gamma, const T* beta, T* y,
                          Largest& largest) {
  float values[Width], g[Width], b[Width] = {};
  unpack(pack, values);
  load<Width>(gamma, g);
  if (beta) load<Width>(beta, b);
#pragma unroll
  for (int i = 0; i < Width; ++i) values[i] = (values[i] - mean) * rstd * g[i] + b[i];
  const Pack<T, Width> normalised = make_pack<T>(values);
  largest.take(normalised);
  store_pack(y, normalised);
}

// Width columns of the sum, rounded to T: the values that the backward pass will read.
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

// One warp normalises one row in registers: dim <= 32 * Packs * Width.
template <typename T, int Packs, bool Centred, typename Largest>
__device__ void warp_norm(const ForwardPointers<T>& p, std::int64_t row, int dim, float epsilon, Largest& largest) {
  constexpr int width = pack_width<T>;
  const int lane = threadIdx.x % warp_lanes;
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
      normalise<T, width>(packs[k], mean, rstd, p.gamma + column, p.beta ? p.beta + column : nullptr, p.y + offset + column,
                          largest);
    }
  }
  if (lane == 0) {
    if constexpr (Centred) p.mean[row] = mean;
    p.rstd[row] = rstd;
  }
}

// One warp per row. If a scale is wanted, to which every block contributes, fewer warps stride over the rows.
template <typename T, int Packs, bool Centred, typename Scale>
__global__ void __launch_bounds__(warps_per_block* warp_lanes, Packs <= 3   ? 12
                                                               : Packs <= 7 ? 8
                                                                            : 4)
    warp_norm_kernel(ForwardPointers<T> p, std::int64_t rows, int dim, float epsilon, Scale scale) {
  await_previous_kernel();
  let_next_kernel_begin();
  typename Scale::Largest largest;
  std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps_per_block + threadIdx.x / warp_lanes;
  if constexpr (Scale::wanted) {
    for (; row < rows; row += static_cast<std::int64_t>(gridDim.x) * warps_per_block)
      warp_norm<T, Packs, Centred>(p, row, dim, epsilon, largest);
    scale.finish(largest);
  } else if (row < rows) {
    warp_norm<T, Packs, Centred>(p, row, dim, epsilon, largest);
  }
}

constexpr int block_threads = 256;

// One block normalises one row of any length, reading it again from cache for each pass. With addends, p.x is the sum.
template <typename T, int Width, bool Centred, bool Adds, typename Largest>
__device__ void block_norm(const ForwardPointers<T>& p, const std::conditional_t<Adds, Addends<T>, std::monostate>& addends,
                           std::int64_t row, int dim, float epsilon, float* shared, Largest& largest) {
  const std::int64_t offset = row * dim;
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
    normalise<T, Width>(load_pack<Width>(x + i), mean, rstd, p.gamma + i, p.beta ? p.beta + i : nullptr, p.y + offset + i,
                        largest);
  }
  if (threadIdx.x == 0) {
    if constexpr (Centred) p.mean[row] = mean;
    p.rstd[row] = rstd;
  }
}

// One block per row; if a scale is wanted, fewer blocks that stride over rows.
template <typename T, int Width, bool Centred, bool Adds, typename Scale>
__global__ void __launch_bounds__(block_threads)
    block_norm_kernel(ForwardPointers<T> p, std::conditional_t<Adds, Addends<T>, std::monostate> addends, std::int64_t rows,
                      int dim, float epsilon, Scale scale) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ float shared[block_threads / warp_lanes];
  typename Scale::Largest largest;
  if constexpr (Scale::wanted) {
    for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x)
      block_norm<T, Width, Centred, Adds>(p, addends, row, dim, epsilon, shared, largest);
    scale.finish(largest);
  } else {
    block_norm<T, Width, Centred, Adds>(p, addends, blockIdx.x, dim, epsilon, shared, largest);
  }
}

// One block per unit of work; if a scale is wanted, no more than run at once, all with equal numbers of turns.
template <typename Scale, typename Kernel>
unsigned norm_blocks(StreamRef stream, Kernel kernel, int threads, std::int64_t blocks) {
  if constexpr (!Scale::wanted) return grid_size(blocks);
  return grid_size(ceil_div(blocks, ceil_div(blocks, resident_blocks(stream, kernel, threads))));
}

template <typename T, int Packs, bool Centred, typename Scale>
void launch_warp_norm(StreamRef stream, const ForwardPointers<T>& pointers, std::int64_t rows, int dim, float epsilon,
                      const Scale& scale) {
  const auto kernel = warp_norm_kernel<T, Packs, Centred, Scale>;
  constexpr int threads = warps_per_block * warp_lanes;
  const unsigned blocks = norm_blocks<Scale>(stream, kernel, threads, ceil_div(rows, warps_per_block));
  launch(stream, {blocks, threads}, kernel, pointers, rows, dim, epsilon, scale);
}

template <typename T, bool Centred, bool Adds, typename Scale, typename Added>
void launch_block_norm(StreamRef stream, const ForwardPointers<T>& pointers, const Added& addends, std::int64_t rows, int dim,
                       bool vectorised, float epsilon, const Scale& scale) {
  with_width_of<T, Scale>(vectorised, [&](auto w) {
    const auto kernel = block_norm_kernel<T, decltype(w)::value, Centred, Adds, Scale>;
    const unsigned blocks = norm_blocks<Scale>(stream, kernel, block_threads, rows);
    launch(stream, {blocks, block_threads}, kernel, pointers, addends, rows, dim, epsilon, scale);
  });
}

template <typename T, bool Centred, typename Scale>
void launch_norm(StreamRef stream, const ForwardPointers<T>& pointers, const Addends<T>& addends, std::int64_t rows, int dim,
                 bool vectorised, float epsilon, const Scale& scale) {
  const std::int64_t packs = ceil_div(dim, warp_lanes * pack_width<T>);
  if (addends.sum) return launch_block_norm<T, Centred, true>(stream, pointers, addends, rows, dim, vectorised, epsilon, scale);
  if (!vectorised || packs > 16) {
    return launch_block_norm<T, Centred, false>(stream, pointers, std::monostate{}, rows, dim, vectorised, epsilon, scale);
  }
  constexpr int fewest = Scale::wanted ? 3 : 1;  // for rows that short, separate kernels are not worth it
  const auto launch = packs <= fewest ? launch_warp_norm<T, fewest, Centred, Scale>
                      : packs <= 3    ? launch_warp_norm<T, 3, Centred, Scale>
                      : packs <= 7    ? launch_warp_norm<T, 7, Centred, Scale>
                                      : launch_warp_norm<T, 16, Centred, Scale>;
  launch(stream, pointers, rows, dim, epsilon, scale);
}

}  // namespace

void norm_forward(StreamRef stream, OpContext& context, const NormForward& args) {
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
    with_scale<T>(stream, context, args.scale, [&](const auto& scale) {
      if (args.kind == NormKind::layer_norm) {
        launch_norm<T, true>(stream, pointers, addends, rows, dim, vectorised, args.epsilon, scale);
      } else {
        launch_norm<T, false>(stream, pointers, addends, rows, dim, vectorised, args.epsilon, scale);
      }
    });
  });
}

}  // namespace plait::ops::cuda
