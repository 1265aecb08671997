#include <algorithm>

#include "ops/cuda/block_reduce.cuh"
#include "ops/cuda/column_sum.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/pack.cuh"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

// A block works on one token at a time. Its threads form groups of `lanes`, a power of two. A group handles one head, then the
// head `groups` further on. A lane owns Width columns of it, then those lanes * Width further on.
struct Heads {
  int queries, normed, all;  // query heads; plus the key heads; plus the value heads
  int dim, lanes;
};

// Sums over the lanes of a group; all of them receive the result. Whole warps take part.
__device__ float group_sum(float x, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(full_warp, x, offset);
  return x;
}

template <typename T, int Width>
__global__ void __launch_bounds__(256)
    qk_norm_forward_kernel(const T* x, const T* query_gain, const T* key_gain, T* y, Heads heads, float epsilon) {
  await_previous_kernel();
  let_next_kernel_begin();
  const int lane = threadIdx.x % heads.lanes, group = threadIdx.x / heads.lanes, groups = blockDim.x / heads.lanes;
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * heads.all * heads.dim;
  const int first = lane * Width, stride = heads.lanes * Width;
  for (int of_group = 0; of_group < heads.all; of_group += groups) {
    const int head = of_group + group;
    const int end = head < heads.all ? heads.dim : 0;
    const std::int64_t offset = token + static_cast<std::int64_t>(head) * heads.dim;
    float squares = 0.0f;
    for (int i = first; i < end; i += stride) {
      float values[Width];
      load<Width>(x + offset + i, values);
#pragma unroll
      for (int j = 0; j < Width; ++j) squares += values[j] * values[j];
    }
    const float scale = 1.0f / sqrtf(group_sum(squares, heads.lanes) / static_cast<float>(heads.dim) + epsilon);
    for (int i = first; i < end; i += stride) {
      Pack<T, Width> pack = load_pack<Width>(x + offset + i);
      if (head < heads.normed) {
        float values[Width], gain[Width];
        unpack(pack, values);
        load<Width>((head < heads.queries ? query_gain : key_gain) + i, gain);
#pragma unroll
        for (int j = 0; j < Width; ++j) values[j] *= scale * gain[j];
        pack = make_pack<T>(values);
      }
      store_pack(y + offset + i, pack);
    }
  }
}

// Blocks stride over tokens. Each group has its own sums in shared memory, in which each lane has its own columns.
template <typename T, int Width>
__global__ void __launch_bounds__(256)
    qk_norm_backward_kernel(const T* x, const T* query_gain, const T* key_gain, T* dqkv, float* partial, std::int64_t tokens,
                            Heads heads, float epsilon) {
  await_previous_kernel();
  let_next_kernel_begin();
  extern __shared__ __align__(16) float sums[];  // [groups, 2, dim]: of query heads, of key heads
  const int lane = threadIdx.x % heads.lanes, group = threadIdx.x / heads.lanes, groups = blockDim.x / heads.lanes;
  const int first = lane * Width, stride = heads.lanes * Width;
  const float inverse_dim = 1.0f / static_cast<float>(heads.dim);
  float* query_sums = sums + 2 * group * heads.dim;
  float* key_sums = query_sums + heads.dim;
  for (int i = first; i < heads.dim; i += stride) {
#pragma unroll
    for (int j = 0; j < Width; ++j) query_sums[i + j] = key_sums[i + j] = 0.0f;
  }
  for (std::int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
    for (int of_group = 0; of_group < heads.normed; of_group += groups) {
      const int head = of_group + group;
      const int end = head < heads.normed ? heads.dim : 0;
      const std::int64_t offset = (token * heads.all + head) * heads.dim;
      const T* gains = head < heads.queries ? query_gain : key_gain;
      float* gain_sums = head < heads.queries ? query_sums : key_sums;
      float squares = 0.0f, products = 0.0f;
      for (int i = first; i < end; i += stride) {
        float values[Width], gradient[Width], gain[Width];
        load<Width>(x + offset + i, values);
        load<Width>(dqkv + offset + i, gradient);
        load<Width>(gains + i, gain);
#pragma unroll
        for (int j = 0; j < Width; ++j) {
          squares += values[j] * values[j];
          products += gradient[j] * gain[j] * values[j];
        }
      }
      const float scale = 1.0f / sqrtf(group_sum(squares, heads.lanes) * inverse_dim + epsilon);
      const float mean = group_sum(products, heads.lanes) * scale * inverse_dim;
      for (int i = first; i < end; i += stride) {
        float values[Width], gradient[Width], gain[Width];
        load<Width>(x + offset + i, values);
        load<Width>(dqkv + offset + i, gradient);
        load<Width>(gains + i, gain);
        float sum[Width];
        load<Width>(gain_sums + i, sum);
#pragma unroll
        for (int j = 0; j < Width; ++j) {
          const float normalised = values[j] * scale;
          sum[j] += gradient[j] * normalised;
          gradient[j] = scale * (gradient[j] * gain[j] - normalised * mean);
        }
        store<Width>(gain_sums + i, sum);
        store<Width>(dqkv + offset + i, gradient);
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < 2 * heads.dim; i += static_cast<int>(blockDim.x)) {
    float sum = 0.0f;
    for (int g = 0; g < groups; ++g) sum += sums[2 * g * heads.dim + i];
    const int of_keys = i >= heads.dim ? 1 : 0, column = i - of_keys * heads.dim;
    partial[(static_cast<std::int64_t>(of_keys) * gridDim.x + blockIdx.x) * heads.dim + column] = sum;
  }
}

constexpr int most_threads = 256;

Heads heads_of(const AttentionShape& s, int width) {
  const int queries = static_cast<int>(s.heads), keys = static_cast<int>(s.kv_heads), dim = static_cast<int>(s.head_dim);
  int lanes = 1;
  while (lanes < warp_lanes && lanes * width < dim) lanes *= 2;
  return {.queries = queries, .normed = queries + keys, .all = queries + 2 * keys, .dim = dim, .lanes = lanes};
}

// Whole warps, and no more groups than there are heads.
std::int64_t threads_for(int heads, int lanes) {
  return std::min<std::int64_t>(most_threads, round_up(std::int64_t{heads} * lanes, warp_lanes));
}

template <typename Args>
bool is_vectorised(const Args& args, const View& other, int width) {
  return args.shape.head_dim % width == 0 && aligned_16({args.x.data, args.query_gain.data, args.key_gain.data, other.data});
}

}  // namespace

void qk_norm_forward(StreamRef stream, const QkNormForward& args) {
  with_type(args.x.dtype, [&](auto t) {
    using T = decltype(t);
    with_width<T>(is_vectorised(args, args.y, pack_width<T>), [&](auto w) {
      constexpr int width = decltype(w)::value;
      const Heads heads = heads_of(args.shape, width);
      const auto threads = static_cast<unsigned>(threads_for(heads.all, heads.lanes));
      launch(stream, {grid_size(args.shape.batch * args.shape.sequence), threads}, qk_norm_forward_kernel<T, width>,
             device_pointer<T>(args.x), device_pointer<T>(args.query_gain), device_pointer<T>(args.key_gain),
             device_pointer<T>(args.y), heads, args.epsilon);
    });
  });
}

void qk_norm_backward(StreamRef stream, OpContext& context, const QkNormBackward& args) {
  const std::int64_t tokens = args.shape.batch * args.shape.sequence, dim = args.shape.head_dim;
  const View workspace = context.workspace();
  float* partial = device_pointer<float>(workspace);
  const std::int64_t most_parts = static_cast<std::int64_t>(workspace.bytes() / (2 * sizeof(float))) / dim;
  require(most_parts >= 1, "qk_norm_backward: the workspace is smaller than two heads");
  with_type(args.x.dtype, [&](auto t) {
    using T = decltype(t);
    with_width<T>(is_vectorised(args, args.dqkv, pack_width<T>), [&](auto w) {
      constexpr int width = decltype(w)::value;
      const auto kernel = qk_norm_backward_kernel<T, width>;
      const Heads heads = heads_of(args.shape, width);
      // The sums of all groups must fit the shared memory that every kernel may have. Heads too wide for that use whole warps
      // each.
      constexpr std::int64_t shared_floats = (std::int64_t{48} << 10) / static_cast<std::int64_t>(sizeof(float));
      const std::int64_t fitting = shared_floats / (2 * dim);
      require(fitting >= 1, "qk_norm_backward: heads of " + std::to_string(dim) + " columns");
      const std::int64_t threads = std::min(threads_for(heads.normed, heads.lanes), fitting * heads.lanes);
      const auto shared_bytes = static_cast<std::size_t>(threads / heads.lanes * 2 * dim) * sizeof(float);
      const std::int64_t parts = std::min({tokens, resident_blocks(stream, kernel, threads, shared_bytes), most_parts});
      launch(stream, {grid_size(parts), static_cast<unsigned>(threads), shared_bytes}, kernel, device_pointer<T>(args.x),
             device_pointer<T>(args.query_gain), device_pointer<T>(args.key_gain), device_pointer<T>(args.dqkv), partial,
             tokens, heads, args.epsilon);
      finish_column_sums(stream, partial, parts, args.dquery_gain, args.dkey_gain, false);
    });
  });
}

}  // namespace plait::ops::cuda
