// A pass for the largest magnitude, and one that rounds. The latter moves tiles of 64 × 64 elements through shared memory where
// the transposed form is wanted.
#include <cuda_fp8.h>

#include <algorithm>

#include "ops/cuda/activation_math.cuh"
#include "ops/cuda/block_reduce.cuh"
#include "ops/cuda/column_sum.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/scale.cuh"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

constexpr int threads = 256;
constexpr int tile = 64;
constexpr int chunk = 8;  // elements of an access of 16 bytes
constexpr int tile_stride = tile + 4;
constexpr int loads = 4;  // of a thread at once, where each reads a tensor from end to end

// Tensors of one kernel. Few words for one tensor: a launch takes longer the more it is told.
struct ScaledTensor {
  const uint4* x;
  std::int64_t chunks;
  unsigned* scale;
};
template <int most>
struct ScaledTensors {
  ScaledTensor list[most];
};

// A row of blocks for each tensor.
template <int most>
__global__ void scale_kernel(ScaledTensors<most> tensors, ScaleCounters counters) {
  await_previous_kernel();
  let_next_kernel_begin();
  const ScaledTensor& tensor = tensors.list[blockIdx.y];
  const uint4* const x = tensor.x;
  LargestMagnitude largest;
  const auto take = [&](const uint4& words) {
    for (const unsigned word : {words.x, words.y, words.z, words.w}) largest.take(word);
  };
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  for (; i + (loads - 1) * stride < tensor.chunks; i += loads * stride) {
    uint4 words[loads];
#pragma unroll
    for (int n = 0; n < loads; ++n) words[n] = x[i + n * stride];
#pragma unroll
    for (int n = 0; n < loads; ++n) take(words[n]);
  }
  for (; i < tensor.chunks; i += stride) take(x[i]);
  finish_scale(largest, tensor.scale, counters + 2 * blockIdx.y);
}

// What is rounded of a chunk that was read.
struct AsRead {
  __device__ uint4 operator()(const uint4& words) const { return words; }
};
struct Gelu {
  __device__ uint4 operator()(const uint4& words) const {
    using Values = Pack<__nv_bfloat16, chunk>;
    float values[chunk];
    unpack(reinterpret_cast<const Values&>(words), values);
#pragma unroll
    for (float& value : values) value = gelu<__nv_bfloat16>(value);
    const Values made = make_pack<__nv_bfloat16>(values);
    return reinterpret_cast<const uint4&>(made);
  }
};

// A body of scaling_elementwise() that writes nothing.
struct ScaleOfGelu {
  const uint4* x;
  template <int Width>
  __device__ void run(std::int64_t first, LargestMagnitude& largest) const {
    static_assert(Width == chunk);
    const uint4 words = Gelu()(x[first / chunk]);
    for (const unsigned word : {words.x, words.y, words.z, words.w}) largest.take(word);
  }
};

__device__ uint2 round_chunk(const uint4& words, float inverse) {
  const auto pair = [&](unsigned word) {
    const float2 values{__uint_as_float(word << 16) * inverse, __uint_as_float(word & 0xffff0000u) * inverse};
    return static_cast<unsigned>(__nv_cvt_float2_to_fp8x2(values, __NV_SATFINITE, __NV_E4M3));
  };
  return {pair(words.x) | pair(words.y) << 16, pair(words.z) | pair(words.w) << 16};
}

__device__ void add_chunk(const uint4& words, float (&sums)[chunk]) {
  const unsigned pairs[] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < chunk / 2; ++i) {
    sums[2 * i] += __uint_as_float(pairs[i] << 16);
    sums[2 * i + 1] += __uint_as_float(pairs[i] & 0xffff0000u);
  }
}

// x as it lies, 16 elements a thread at once.
template <typename Make>
__global__ void round_values_kernel(const uint4* x, std::int64_t count, const float* scale, uint4* values) {
  await_previous_kernel();
  let_next_kernel_begin();
  const float inverse = 1.0f / scale[0];  // exact
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count; i += stride) {
    const uint4 left = x[2 * i], right = x[2 * i + 1];
    const uint2 low = round_chunk(Make()(left), inverse), high = round_chunk(Make()(right), inverse);
    values[i] = {low.x, low.y, high.x, high.y};
  }
}

// Where a thread reads of a tile of 64 × 64, and where it writes of the tile turned.
constexpr int chunks_of_row = tile / chunk, rows_at_once = threads / chunks_of_row;
constexpr int wide = 16, wides = tile / wide;
static_assert(threads == tile * tile / wide, "each thread writes 16 bytes of the transposed tile");

// The tile whose first element is [first_row, first_column] of a tensor of these dims, out of `turned`.
__device__ void write_turned(const std::uint8_t (&turned)[tile * tile_stride], std::int64_t rows, std::int64_t columns,
                             std::int64_t first_row, std::int64_t first_column, std::uint8_t* transposed) {
  const int turned_row = static_cast<int>(threadIdx.x) / wides, turned_column = static_cast<int>(threadIdx.x) % wides * wide;
  if (first_column + turned_row >= columns || first_row + turned_column >= rows) return;
  const auto* from = reinterpret_cast<const unsigned*>(turned + turned_row * tile_stride + turned_column);
  // Read much later, and not to push out of the cache what is read next.
  __stcs(reinterpret_cast<uint4*>(transposed + (first_column + turned_row) * rows + first_row + turned_column),
         uint4{from[0], from[1], from[2], from[3]});
}

// Turns a tile of what is rounded already. A block for each.
__global__ void __launch_bounds__(threads)
    transpose_kernel(const std::uint8_t* values, std::int64_t rows, std::int64_t columns, std::uint8_t* transposed) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ __align__(16) std::uint8_t turned[tile * tile_stride];
  const int row = static_cast<int>(threadIdx.x) / wides, column = static_cast<int>(threadIdx.x) % wides * wide;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * tile,
                     first_column = static_cast<std::int64_t>(blockIdx.x) * tile;
  if (first_row + row < rows && first_column + column < columns) {
    const uint4 words = *reinterpret_cast<const uint4*>(values + (first_row + row) * columns + first_column + column);
    const unsigned of_words[] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < wide; ++i)
      turned[(column + i) * tile_stride + row] = static_cast<std::uint8_t>(of_words[i / 4] >> (i % 4 * 8));
  }
  __syncthreads();
  write_turned(turned, rows, columns, first_row, first_column, transposed);
}

// Rounds the tile whose first element is x[first_row, first_column]. `sums`: this thread's columns are added to it, not
// rounded.
template <bool Values, bool Sums, typename Make>
__device__ void round_tile(const std::uint16_t* x, std::int64_t rows, std::int64_t columns, float inverse,
                           std::int64_t first_row, std::int64_t first_column, std::uint8_t* values, std::uint8_t* transposed,
                           std::uint8_t (&turned)[tile * tile_stride], float (&sums)[chunk]) {
  const int column = static_cast<int>(threadIdx.x) % chunks_of_row * chunk;
#pragma unroll
  for (int row = static_cast<int>(threadIdx.x) / chunks_of_row; row < tile; row += rows_at_once) {
    if (first_row + row >= rows || first_column + column >= columns) continue;
    const std::int64_t at = (first_row + row) * columns + first_column + column;
    const uint4 words = *reinterpret_cast<const uint4*>(x + at);
    if constexpr (Sums) add_chunk(words, sums);
    const uint2 rounded = round_chunk(Make()(words), inverse);
    if constexpr (Values) *reinterpret_cast<uint2*>(values + at) = rounded;
#pragma unroll
    for (int i = 0; i < chunk; ++i) {
      const unsigned word = i < 4 ? rounded.x : rounded.y;
      turned[(column + i) * tile_stride + row] = static_cast<std::uint8_t>(word >> (i % 4 * 8));
    }
  }
  __syncthreads();
  write_turned(turned, rows, columns, first_row, first_column, transposed);
}

// Tiles of 64 columns: block (x, y) those of rows y, y + gridDim.y, ... With Sums it also writes what they sum up to, before
// rounding, to partial[y, columns].
template <bool Values, bool Sums, typename Make>
__global__ void __launch_bounds__(threads)
    round_kernel(const std::uint16_t* x, std::int64_t rows, std::int64_t columns, const float* scale, std::uint8_t* values,
                 std::uint8_t* transposed, float* partial) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ __align__(16) std::uint8_t turned[tile * tile_stride];
  const float inverse = 1.0f / scale[0];  // exact
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * tile;
  float sums[chunk] = {};
  for (std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * tile; first_row < rows;
       first_row += static_cast<std::int64_t>(gridDim.y) * tile) {
    round_tile<Values, Sums, Make>(x, rows, columns, inverse, first_row, first_column, values, transposed, turned, sums);
    if constexpr (Sums) __syncthreads();  // before the next tile
  }
  if constexpr (Sums) {
    __shared__ float of_warps[threads / warp_lanes][tile];
    // Lanes that are chunks_of_row apart have the same columns.
#pragma unroll
    for (int i = 0; i < chunk; ++i) {
#pragma unroll
      for (int offset = warp_lanes / 2; offset >= chunks_of_row; offset /= 2)
        sums[i] += __shfl_xor_sync(full_warp, sums[i], offset);
    }
    const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
    if (lane < chunks_of_row) {
#pragma unroll
      for (int i = 0; i < chunk; ++i) of_warps[threadIdx.x / warp_lanes][lane * chunk + i] = sums[i];
    }
    __syncthreads();
    if (threadIdx.x < tile && first_column + threadIdx.x < columns) {
      float sum = 0.0f;
#pragma unroll
      for (int warp = 0; warp < threads / warp_lanes; ++warp) sum += of_warps[warp][threadIdx.x];
      partial[static_cast<std::int64_t>(blockIdx.y) * columns + first_column + threadIdx.x] = sum;
    }
  }
}

struct RoundedTensor {
  const std::uint16_t* x;
  std::int64_t rows, columns;
  const float* scale;
  std::uint8_t *values, *transposed;
  std::int64_t first_tile;  // of all tensors' tiles
};
struct RoundedTensors {
  RoundedTensor list[CudaOpContext::most_scales_at_once];
  int count;
};

// A block for each tile of every tensor.
__global__ void __launch_bounds__(threads) round_tensors_kernel(RoundedTensors tensors) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ __align__(16) std::uint8_t turned[tile * tile_stride];
  int of = 0;
  while (of + 1 < tensors.count && tensors.list[of + 1].first_tile <= blockIdx.x) ++of;
  const RoundedTensor& t = tensors.list[of];
  const std::int64_t at = blockIdx.x - t.first_tile, tiles_of_row = (t.columns + tile - 1) / tile;
  float sums[chunk];
  round_tile<true, false, AsRead>(t.x, t.rows, t.columns, 1.0f / t.scale[0], at / tiles_of_row * tile, at % tiles_of_row * tile,
                                  t.values, t.transposed, turned, sums);
}

// Rows of partial sums: enough that every multiprocessor has its blocks, and few beside what is summed.
constexpr std::int64_t tiles_of_a_sum = 4;

// Of a kernel whose threads go through `items` together, `loads` each at least.
unsigned blocks_for(StreamRef stream, std::int64_t items) {
  constexpr std::int64_t blocks_per_multiprocessor = 8;
  return grid_size(std::clamp<std::int64_t>(ceil_div(items, threads * loads), 1,
                                            blocks_per_multiprocessor * multiprocessors(stream.device())));
}

template <typename Make>
void quantize_made(StreamRef stream, OpContext& context, View x, const Quantized& out, const RowSums& sums) {
  const std::int64_t rows = x.shape[0], columns = x.shape[1];
  require(aligned_16({x.data, out.values.data, out.transposed.data}), "quantize: tensors are aligned to 16 bytes");
  const auto* const scale = device_pointer<const float>(out.scale);
  if (!out.transposed || rows == 0) {
    if (sums.out) cuda::sum_rows(stream, context, x, sums);
    if (!out.values || rows == 0) return;
    const std::int64_t count = x.elements() / (2 * chunk);
    return launch(stream, {blocks_for(stream, count), threads}, round_values_kernel<Make>, device_pointer<const uint4>(x),
                  count, scale, device_pointer<uint4>(out.values));
  }
  const std::int64_t tiles = ceil_div(rows, tile);
  const auto run = [&](auto kernel, std::int64_t parts, float* partial) {
    const dim3 grid(grid_size(ceil_div(columns, tile)), grid_size(parts));
    launch(stream, {grid, threads}, kernel, device_pointer<const std::uint16_t>(x), rows, columns, scale,
           device_pointer<std::uint8_t>(out.values), device_pointer<std::uint8_t>(out.transposed), partial);
  };
  if (!sums.out) return run(out.values ? round_kernel<true, false, Make> : round_kernel<false, false, Make>, tiles, nullptr);
  const std::int64_t fitting = static_cast<std::int64_t>(context.workspace().bytes() / sizeof(float)) / columns;
  require(fitting >= 1, "quantize: the workspace is smaller than one row");
  const std::int64_t parts = std::min({ceil_div(tiles, tiles_of_a_sum), fitting, std::int64_t{65535}});
  auto* const partial = device_pointer<float>(context.workspace());
  run(out.values ? round_kernel<true, true, Make> : round_kernel<false, true, Make>, parts, partial);
  finish_column_sums(stream, partial, parts, sums.out, {}, sums.accumulate);
}

template <int most>
void find_scales_at_once(StreamRef stream, OpContext& context, std::span<const QuantizedTensor> operands) {
  ScaledTensors<most> tensors{};
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto& [x, out] = operands[i];
    require(aligned_16({x.data, out.scale.data}), "find_scale: tensors are aligned to 16 bytes");
    tensors.list[i] = {device_pointer<const uint4>(x), x.elements() / chunk, device_pointer<unsigned>(out.scale)};
    longest = std::max(longest, tensors.list[i].chunks);
  }
  launch(stream, {dim3(blocks_for(stream, longest), static_cast<unsigned>(operands.size())), threads}, scale_kernel<most>,
         tensors, cuda_context(context).scale_counters(native(stream)));
}

// Calls act(some of them) on all operands, as many at once as one kernel takes.
template <typename Act>
void for_operands(std::span<const QuantizedTensor> operands, const Act& act) {
  constexpr std::size_t most = CudaOpContext::most_scales_at_once;
  for (; operands.size() > most; operands = operands.subspan(most)) act(operands.first(most));
  if (!operands.empty()) act(operands);
}

}  // namespace

void find_scale(StreamRef stream, OpContext& context, View x, View scale, OperandOf of) {
  require(aligned_16({x.data, scale.data}), "find_scale: tensors are aligned to 16 bytes");
  if (of == OperandOf::gelu)
    return scaling_elementwise(stream, context, x.elements(), ScaleOfGelu{device_pointer<const uint4>(x)}, scale);
  const QuantizedTensor operand{x, {.values = {}, .transposed = {}, .scale = scale}};
  find_scales_at_once<1>(stream, context, {&operand, 1});
}

void quantize(StreamRef stream, OpContext& context, View x, const Quantized& out, const RowSums& sums, OperandOf of) {
  if (of == OperandOf::gelu) return quantize_made<Gelu>(stream, context, x, out, sums);
  quantize_made<AsRead>(stream, context, x, out, sums);
}

void transpose(StreamRef stream, OpContext&, View values, View transposed) {
  require(aligned_16({values.data, transposed.data}), "transpose: tensors are aligned to 16 bytes");
  const std::int64_t rows = values.shape[0], columns = values.shape[1];
  const dim3 grid(grid_size(ceil_div(columns, tile)), grid_size(ceil_div(rows, tile)));
  launch(stream, {grid, threads}, transpose_kernel, device_pointer<const std::uint8_t>(values), rows, columns,
         device_pointer<std::uint8_t>(transposed));
}

void find_scales(StreamRef stream, OpContext& context, std::span<const QuantizedTensor> operands) {
  for_operands(operands, [&](std::span<const QuantizedTensor> some) {
    find_scales_at_once<CudaOpContext::most_scales_at_once>(stream, context, some);
  });
}

void quantize_all(StreamRef stream, OpContext& context, std::span<const QuantizedTensor> operands) {
  const auto has_both = [](const QuantizedTensor& o) { return o.out.values && o.out.transposed && o.x.elements() > 0; };
  if (!std::ranges::all_of(operands, has_both)) {
    for (const QuantizedTensor& o : operands) cuda::quantize(stream, context, o.x, o.out, {}, OperandOf::x);
    return;
  }
  for_operands(operands, [&](std::span<const QuantizedTensor> some) {
    RoundedTensors tensors{};
    std::int64_t tiles = 0;
    for (const auto& [x, out] : some) {
      require(aligned_16({x.data, out.values.data, out.transposed.data}), "quantize: tensors are aligned to 16 bytes");
      const std::int64_t rows = x.shape[0], columns = x.shape[1];
      tensors.list[tensors.count++] = {device_pointer<const std::uint16_t>(x),
                                       rows,
                                       columns,
                                       device_pointer<const float>(out.scale),
                                       device_pointer<std::uint8_t>(out.values),
                                       device_pointer<std::uint8_t>(out.transposed),
                                       tiles};
      tiles += ceil_div(rows, tile) * ceil_div(columns, tile);
    }
    launch(stream, {grid_size(tiles), threads}, round_tensors_kernel, tensors);
  });
}

}  // namespace plait::ops::cuda
