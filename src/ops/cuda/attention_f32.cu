#include "ops/cuda/attention.h"

#include <cmath>

#include "ops/cuda/block_reduce.cuh"
#include "ops/cuda/launch.h"

namespace plait::ops::cuda {
namespace {

// All kernels share one pattern. A warp owns one row (a query, or in the last kernel a key); tiles of 32 rows of the other side
// pass through shared memory. A lane owns one row of the tile for the scores, and every 32nd element of head_dim for the sums.
constexpr int warps = 8;
constexpr int tile = warp_lanes;
constexpr int most_elements = most_f32_head_dim / warp_lanes;  // of head_dim, per lane

struct Layout {
  int sequence, heads, kv_heads, head_dim;
  float scale;
  int qkv_row, out_row;  // elements per token
  int pitch;             // floats per row of a tile in shared memory: odd, so that 32 rows fall into 32 banks
  int window;
  const int* starts;
  // The first key that a row sees; ascending over rows.
  __device__ int first_key(std::int64_t batch, int row) const {
    const int start = starts ? starts[batch * sequence + row] : 0;
    return window > 0 ? max(start, row - window + 1) : start;
  }
  __device__ const float* query(const float* qkv, std::int64_t batch, int head) const {
    return qkv + batch * sequence * qkv_row + head * head_dim;
  }
  __device__ std::int64_t key_offset(int kv_head) const { return static_cast<std::int64_t>(heads + kv_head) * head_dim; }
  __device__ std::int64_t value_offset(int kv_head) const {
    return static_cast<std::int64_t>(heads + kv_heads + kv_head) * head_dim;
  }
};

// Rows [first, first + tile) of a matrix with `row_stride`, zeros past `rows`.
__device__ void load_tile(float* to, const float* from, int first, int rows, std::int64_t row_stride, const Layout& l) {
  for (int i = static_cast<int>(threadIdx.x); i < tile * l.head_dim; i += static_cast<int>(blockDim.x)) {
    const int row = i / l.head_dim, column = i % l.head_dim;
    to[row * l.pitch + column] = first + row < rows ? from[(first + row) * row_stride + column] : 0.0f;
  }
}

__device__ float dot(const float* a, const float* b, int count) {
  float sum = 0.0f;
  for (int i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// sums[e] += Σ over the tile's rows of weight(row) * tile[row][lane + 32 e]; a lane holds the weight of its row.
__device__ void accumulate(float (&sums)[most_elements], float weight, const float* rows, const Layout& l) {
  const int lane = threadIdx.x % warp_lanes;
  for (int row = 0; row < tile; ++row) {
    const float w = __shfl_sync(full_warp, weight, row);
#pragma unroll
    for (int e = 0; e < most_elements; ++e) {
      if (lane + warp_lanes * e < l.head_dim) sums[e] += w * rows[row * l.pitch + lane + warp_lanes * e];
    }
  }
}

__device__ void copy_row(float* to, const float* from, bool present, int count) {
  for (int i = static_cast<int>(threadIdx.x) % warp_lanes; i < count; i += warp_lanes) to[i] = present ? from[i] : 0.0f;
  __syncwarp();
}

__device__ void store_row(float* to, const float (&sums)[most_elements], float factor, int count) {
  const int lane = threadIdx.x % warp_lanes;
#pragma unroll
  for (int e = 0; e < most_elements; ++e) {
    if (lane + warp_lanes * e < count) to[lane + warp_lanes * e] = sums[e] * factor;
  }
}

// The first tile of keys that a block of queries needs.
__device__ int first_tile(const Layout& l, std::int64_t batch) {
  return l.first_key(batch, static_cast<int>(blockIdx.x) * warps) / tile * tile;
}

// Grid (query blocks, heads, batch).
__global__ void __launch_bounds__(warps* warp_lanes) forward_kernel(const float* qkv, float* out, float* lse, Layout l) {
  await_previous_kernel();
  let_next_kernel_begin();
  extern __shared__ float shared[];
  float *keys = shared, *values = keys + tile * l.pitch, *queries = values + tile * l.pitch;
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
  const int head = static_cast<int>(blockIdx.y), kv_head = head / (l.heads / l.kv_heads);
  const std::int64_t batch = blockIdx.z;
  const int query = static_cast<int>(blockIdx.x) * warps + warp;
  const bool present = query < l.sequence;
  const float* tokens = qkv + batch * l.sequence * l.qkv_row;
  float* q = queries + warp * l.head_dim;
  copy_row(q, l.query(qkv, batch, head) + static_cast<std::int64_t>(query) * l.qkv_row, present, l.head_dim);

  float sums[most_elements] = {}, maximum = -INFINITY, total = 0.0f;
  const int first_key = present ? l.first_key(batch, query) : 0;
  const int last_key = min((static_cast<int>(blockIdx.x) + 1) * warps, l.sequence);  // exclusive, of the whole block
  for (int first = first_tile(l, batch); first < last_key; first += tile) {
    __syncthreads();
    load_tile(keys, tokens + l.key_offset(kv_head), first, l.sequence, l.qkv_row, l);
    load_tile(values, tokens + l.value_offset(kv_head), first, l.sequence, l.qkv_row, l);
    __syncthreads();
    const bool allowed = present && first + lane >= first_key && first + lane <= query;
    const float score = allowed ? dot(q, keys + lane * l.pitch, l.head_dim) * l.scale : -INFINITY;
    const float new_maximum = fmaxf(maximum, warp_max(score));
    const float shrink = maximum == -INFINITY ? 0.0f : expf(maximum - new_maximum);
    const float weight = allowed ? expf(score - new_maximum) : 0.0f;
    total = total * shrink + warp_sum(weight);
    maximum = new_maximum;
#pragma unroll
    for (float& sum : sums) sum *= shrink;
    accumulate(sums, weight, values, l);
  }
  if (!present) return;
  store_row(out + (batch * l.sequence + query) * l.out_row + head * l.head_dim, sums, 1.0f / total, l.head_dim);
  if (lane == 0) lse[(batch * l.heads + head) * l.sequence + query] = maximum + logf(total);
}

// delta[batch, heads, sequence] = dout · out, a warp per row: the softmax's share of every score gradient (Dao et al. 2022).
__global__ void __launch_bounds__(warps* warp_lanes)
    delta_kernel(const float* out, const float* dout, float* delta, std::int64_t rows, Layout l) {
  await_previous_kernel();
  let_next_kernel_begin();
  const int lane = threadIdx.x % warp_lanes;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp_lanes;  // (batch, head, position)
  if (row >= rows) return;
  const std::int64_t position = row % l.sequence, head = row / l.sequence % l.heads, batch = row / l.sequence / l.heads;
  const std::int64_t offset = (batch * l.sequence + position) * l.out_row + head * l.head_dim;
  float sum = 0.0f;
  for (int i = lane; i < l.head_dim; i += warp_lanes) sum += out[offset + i] * dout[offset + i];
  sum = warp_sum(sum);
  if (lane == 0) delta[row] = sum;
}

// dq. Grid as forward.
__global__ void __launch_bounds__(warps* warp_lanes)
    query_gradient_kernel(const float* qkv, const float* dout, const float* lse, const float* delta, float* dqkv, Layout l) {
  await_previous_kernel();
  let_next_kernel_begin();
  extern __shared__ float shared[];
  float *keys = shared, *values = keys + tile * l.pitch, *queries = values + tile * l.pitch,
        *gradients = queries + warps * l.head_dim;
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
  const int head = static_cast<int>(blockIdx.y), kv_head = head / (l.heads / l.kv_heads);
  const std::int64_t batch = blockIdx.z;
  const int query = static_cast<int>(blockIdx.x) * warps + warp;
  const bool present = query < l.sequence;
  const float* tokens = qkv + batch * l.sequence * l.qkv_row;
  float *q = queries + warp * l.head_dim, *d = gradients + warp * l.head_dim;
  copy_row(q, l.query(qkv, batch, head) + static_cast<std::int64_t>(query) * l.qkv_row, present, l.head_dim);
  copy_row(d, dout + (batch * l.sequence + query) * l.out_row + head * l.head_dim, present, l.head_dim);
  const std::int64_t statistic = (batch * l.heads + head) * l.sequence + query;
  const float row_lse = present ? lse[statistic] : 0.0f, row_delta = present ? delta[statistic] : 0.0f;

  float sums[most_elements] = {};
  const int first_key = present ? l.first_key(batch, query) : 0;
  const int last_key = min((static_cast<int>(blockIdx.x) + 1) * warps, l.sequence);
  for (int first = first_tile(l, batch); first < last_key; first += tile) {
    __syncthreads();
    load_tile(keys, tokens + l.key_offset(kv_head), first, l.sequence, l.qkv_row, l);
    load_tile(values, tokens + l.value_offset(kv_head), first, l.sequence, l.qkv_row, l);
    __syncthreads();
    float score_gradient = 0.0f;
    if (present && first + lane >= first_key && first + lane <= query) {
      const float weight = expf(dot(q, keys + lane * l.pitch, l.head_dim) * l.scale - row_lse);
      score_gradient = weight * (dot(d, values + lane * l.pitch, l.head_dim) - row_delta);
    }
    accumulate(sums, score_gradient, keys, l);
  }
  if (present) {
    float* to = dqkv + (batch * l.sequence + query) * l.qkv_row + head * l.head_dim;
    store_row(to, sums, l.scale, l.head_dim);
  }
}

// dk and dv. A warp owns one key and goes over the queries of every head that reads it, in order. Grid (key blocks, KV heads,
// batch).
__global__ void __launch_bounds__(warps* warp_lanes)
    key_value_gradient_kernel(const float* qkv, const float* dout, const float* lse, const float* delta, float* dqkv,
                              Layout l) {
  await_previous_kernel();
  let_next_kernel_begin();
  extern __shared__ float shared[];
  float *queries = shared, *gradients = queries + tile * l.pitch, *keys = gradients + tile * l.pitch,
        *values = keys + warps * l.head_dim;
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
  const int kv_head = static_cast<int>(blockIdx.y), group = l.heads / l.kv_heads;
  const std::int64_t batch = blockIdx.z;
  const int key = static_cast<int>(blockIdx.x) * warps + warp;
  const bool present = key < l.sequence;
  const float* tokens = qkv + batch * l.sequence * l.qkv_row;
  float *k = keys + warp * l.head_dim, *v = values + warp * l.head_dim;
  copy_row(k, tokens + l.key_offset(kv_head) + static_cast<std::int64_t>(key) * l.qkv_row, present, l.head_dim);
  copy_row(v, tokens + l.value_offset(kv_head) + static_cast<std::int64_t>(key) * l.qkv_row, present, l.head_dim);

  float dk[most_elements] = {}, dv[most_elements] = {};
  const int first_query = static_cast<int>(blockIdx.x) * warps / tile * tile;
  const int last_key = (static_cast<int>(blockIdx.x) + 1) * warps - 1;
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const std::int64_t statistics = (batch * l.heads + head) * l.sequence;
    for (int first = first_query; first < l.sequence; first += tile) {
      if (l.first_key(batch, first) > last_key) break;  // neither these queries nor later ones see a key of the block
      __syncthreads();
      load_tile(queries, l.query(qkv, batch, head), first, l.sequence, l.qkv_row, l);
      load_tile(gradients, dout + batch * l.sequence * l.out_row + head * l.head_dim, first, l.sequence, l.out_row, l);
      __syncthreads();
      const int query = first + lane;
      float weight = 0.0f, score_gradient = 0.0f;
      if (present && query < l.sequence && key <= query && key >= l.first_key(batch, query)) {
        weight = expf(dot(k, queries + lane * l.pitch, l.head_dim) * l.scale - lse[statistics + query]);
        score_gradient = weight * (dot(v, gradients + lane * l.pitch, l.head_dim) - delta[statistics + query]);
      }
      accumulate(dv, weight, gradients, l);
      accumulate(dk, score_gradient, queries, l);
    }
  }
  if (present) {
    float* to = dqkv + (batch * l.sequence + key) * l.qkv_row;
    store_row(to + l.key_offset(kv_head), dk, l.scale, l.head_dim);
    store_row(to + l.value_offset(kv_head), dv, 1.0f, l.head_dim);
  }
}

Layout layout_of(const AttentionShape& s, const View& starts) {
  require(s.head_dim <= most_f32_head_dim, "attention in f32 on CUDA: a head is too wide");
  Layout l{};
  l.sequence = static_cast<int>(s.sequence);
  l.heads = static_cast<int>(s.heads);
  l.kv_heads = static_cast<int>(s.kv_heads);
  l.head_dim = static_cast<int>(s.head_dim);
  l.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  l.qkv_row = (l.heads + 2 * l.kv_heads) * l.head_dim;
  l.out_row = l.heads * l.head_dim;
  l.pitch = l.head_dim | 1;
  l.window = s.window < s.sequence ? static_cast<int>(s.window) : 0;
  l.starts = device_pointer<int>(starts);
  return l;
}

// Two tiles, and `row_buffers` rows for each warp.
template <typename Kernel>
int prepare(Kernel kernel, const Layout& l, int row_buffers) {
  const int bytes = (2 * tile * l.pitch + row_buffers * warps * l.head_dim) * static_cast<int>(sizeof(float));
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  return bytes;
}

dim3 grid_of(const AttentionShape& s, std::int64_t heads) {
  require(heads <= most_f32_heads && s.batch <= most_f32_heads, "attention in f32 on CUDA: too many heads or sequences");
  return dim3(grid_size(ceil_div(s.sequence, warps)), static_cast<unsigned>(heads), static_cast<unsigned>(s.batch));
}

}  // namespace

std::size_t attention_f32_workspace_bytes(const AttentionShape& s) {
  return static_cast<std::size_t>(s.batch * s.heads * s.sequence) * sizeof(float);
}

void attention_f32_forward(StreamRef stream, const AttentionForward& args) {
  const Layout l = layout_of(args.shape, args.starts);
  const int shared_bytes = prepare(forward_kernel, l, 1);
  launch(stream, {grid_of(args.shape, args.shape.heads), warps * warp_lanes, static_cast<std::size_t>(shared_bytes)},
         forward_kernel, device_pointer<float>(args.qkv), device_pointer<float>(args.out), device_pointer<float>(args.lse), l);
}

void attention_f32_backward(StreamRef stream, const AttentionBackward& args, View workspace) {
  const AttentionShape& s = args.shape;
  const Layout l = layout_of(s, args.starts);
  const std::size_t needed = attention_f32_workspace_bytes(s);
  require(needed <= workspace.bytes(), "attention in f32 needs " + std::to_string(needed) +
                                           " bytes of workspace, the context has " + std::to_string(workspace.bytes()) +
                                           "; use a smaller micro-batch");
  const float *qkv = device_pointer<float>(args.qkv), *dout = device_pointer<float>(args.dout),
              *lse = device_pointer<float>(args.lse);
  float *delta = device_pointer<float>(workspace), *dqkv = device_pointer<float>(args.dqkv);
  constexpr unsigned threads = warps * warp_lanes;
  const std::int64_t rows = s.batch * s.heads * s.sequence;
  launch(stream, {grid_size(ceil_div(rows, warps)), threads}, delta_kernel, device_pointer<float>(args.out), dout, delta, rows,
         l);
  const auto query_bytes = static_cast<std::size_t>(prepare(query_gradient_kernel, l, 2));
  launch(stream, {grid_of(s, s.heads), threads, query_bytes}, query_gradient_kernel, qkv, dout, lse, delta, dqkv, l);
  const auto key_bytes = static_cast<std::size_t>(prepare(key_value_gradient_kernel, l, 2));
  launch(stream, {grid_of(s, s.kv_heads), threads, key_bytes}, key_value_gradient_kernel, qkv, dout, lse, delta, dqkv, l);
}

}  // namespace plait::ops::cuda
