// FP8 quantization: one pass for the largest magnitude, and one that rounds. The latter moves tiles of 128 × 64 elements
// through shared memory where the transposed form is wanted.
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
constexpr int chunk = 8;                      // elements per 16-byte access
constexpr int loads = 4;                      // accesses a thread has in flight where it reads a tensor from end to end
constexpr int blocks_per_multiprocessor = 8;  // likewise

// The tensors of one kernel. Keep the kernel arguments small; launch time grows with them.
struct ScaledTensor {
  const uint4* x;
  std::int64_t chunks;
  unsigned* scale;
};
template <int most>
struct ScaledTensors {
  ScaledTensor list[most];
};

// Calls act(words) on this thread's chunks, reading `loads` of them at once, and singly at the end.
template <typename Act>
__device__ void for_chunks(const uint4* x, std::int64_t count, const Act& act) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  for (; i + (loads - 1) * stride < count; i += loads * stride) {
    uint4 words[loads];
#pragma unroll
    for (int n = 0; n < loads; ++n) words[n] = x[i + n * stride];
    act(words);
  }
  for (; i < count; i += stride) {
    const uint4 words[] = {x[i]};
    act(words);
  }
}

// One row of blocks per tensor.
template <int most>
__global__ void scale_kernel(ScaledTensors<most> tensors, ScaleCounters counters) {
  await_previous_kernel();
  let_next_kernel_begin();
  const ScaledTensor& tensor = tensors.list[blockIdx.y];
  LargestMagnitude largest;
  for_chunks(tensor.x, tensor.chunks, [&](const auto& chunks) {
#pragma unroll
    for (const uint4& words : chunks) largest.take(words);
  });
  finish_scale(largest, tensor.scale, counters + 2 * blockIdx.y);
}

// Rounds a chunk as it was read.
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

// Bits of bf16. Without their signs they are ordered like the values they stand for.
constexpr unsigned most_of_negative = 0x3e31;  // 0.173: |gelu(x)| for x < 0 never exceeds it
constexpr unsigned minus_infinity = 0xff80;    // followed by the negative NaNs

// scale_kernel() of gelu(x). It computes few of the values: since gelu(x) <= x, most chunks clearly hold nothing larger than
// the maximum so far.
__global__ void __launch_bounds__(threads, blocks_per_multiprocessor)
    gelu_scale_kernel(ScaledTensor tensor, ScaleCounters counters) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ unsigned seen_by_block;
  if (threadIdx.x == 0) seen_by_block = 0;
  __syncthreads();
  LargestMagnitude largest;
  unsigned seen = 0;
  const auto take = [&](const uint4& words) {
    const unsigned most = __vmaxs2(__vmaxs2(words.x, words.y), __vmaxs2(words.z, words.w));   // NaN first, negatives last
    const unsigned least = __vmaxu2(__vmaxu2(words.x, words.y), __vmaxu2(words.z, words.w));  // lowest negative first
    const int up_to = max(static_cast<int>(most) >> 16, static_cast<int>(most << 16) >> 16);
    const bool finite = max(least >> 16, least & 0xffffu) < minus_infinity;
    if (finite && up_to <= static_cast<int>(seen) && seen >= most_of_negative) return;
    largest.take(Gelu()(words));
    seen = max(seen, largest.bits());
  };
  for_chunks(tensor.x, tensor.chunks, [&](const auto& chunks) {
    const unsigned known = *static_cast<volatile unsigned*>(&seen_by_block);  // current, or slightly out of date
    seen = max(seen, known);
#pragma unroll
    for (const uint4& words : chunks) take(words);
    if (seen > known) atomicMax(&seen_by_block, seen);
  });
  finish_scale(largest, tensor.scale, counters);
}

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

// Rounds x as it lies, 16 elements per thread at once.
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

// The layout of a tile over threads: each thread reads four rows of one chunk, and writes 16 bytes of some of its columns
// transposed, four rows to a word.
constexpr int tile_rows = 128, tile_columns = 64, rows_of_word = 4;
constexpr std::int64_t most_blocks_down = 65535;  // the grid's limit; blocks go on with further tiles
constexpr int chunks_of_row = tile_columns / chunk, words_of_column = tile_rows / rows_of_word;
static_assert(threads == chunks_of_row * words_of_column, "each thread has four rows of a chunk");
// Blocks per multiprocessor: with registers for more, a thread could not have all its words in flight at once.
constexpr int rounding_blocks = 4;
using TurnedTile = unsigned[tile_columns][words_of_column + 1];  // the odd word makes columns begin in different banks

// Rounds the values read at an element of the tensor to e4m3.
template <typename Make>
struct Rounded {
  const std::uint16_t* x;
  float inverse;
  using Words = uint4;
  __device__ Words read(std::int64_t at) const { return *reinterpret_cast<const uint4*>(x + at); }
  __device__ uint2 operator()(const Words& words) const { return round_chunk(Make()(words), inverse); }
};
struct RoundedAlready {
  const std::uint8_t* values;
  using Words = uint2;
  __device__ Words read(std::int64_t at) const { return *reinterpret_cast<const uint2*>(values + at); }
  __device__ uint2 operator()(const Words& words) const { return words; }
};

// Transposes four columns of four rows into one word per column.
__device__ void turn(unsigned a, unsigned b, unsigned c, unsigned d, unsigned (&columns)[4]) {
  const unsigned ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
  const unsigned cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
  columns[0] = __byte_perm(ab_low, cd_low, 0x5410);
  columns[1] = __byte_perm(ab_low, cd_low, 0x7632);
  columns[2] = __byte_perm(ab_high, cd_high, 0x5410);
  columns[3] = __byte_perm(ab_high, cd_high, 0x7632);
}

// Transposes the tile whose first element is [first_row, first_column] of a tensor of these dims; rows and columns are
// multiples of 16. `sums`: the unrounded values of this thread's columns are added to it.
template <bool Values, bool Sums, typename Source>
__device__ void turn_tile(const Source& source, std::int64_t rows, std::int64_t columns, std::int64_t first_row,
                          std::int64_t first_column, std::uint8_t* values, std::uint8_t* transposed, TurnedTile& turned,
                          float (&sums)[chunk]) {
  const int of_row = static_cast<int>(threadIdx.x) % chunks_of_row, of_column = static_cast<int>(threadIdx.x) / chunks_of_row;
  const std::int64_t row = first_row + of_column * rows_of_word, column = first_column + of_row * chunk;
  if (row < rows && column < columns) {
    typename Source::Words words[rows_of_word];
#pragma unroll
    for (int r = 0; r < rows_of_word; ++r) words[r] = source.read((row + r) * columns + column);
    uint2 made[rows_of_word];
#pragma unroll
    for (int r = 0; r < rows_of_word; ++r) {
      if constexpr (Sums) add_chunk(words[r], sums);
      made[r] = source(words[r]);
      if constexpr (Values) *reinterpret_cast<uint2*>(values + (row + r) * columns + column) = made[r];
    }
    unsigned left[4], right[4];
    turn(made[0].x, made[1].x, made[2].x, made[3].x, left);
    turn(made[0].y, made[1].y, made[2].y, made[3].y, right);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      turned[of_row * chunk + i][of_column] = left[i];
      turned[of_row * chunk + 4 + i][of_column] = right[i];
    }
  }
  __syncthreads();
  constexpr int words_at_once = 4, accesses = words_of_column / words_at_once;
  static_assert(tile_columns * accesses % threads == 0);
#pragma unroll
  for (int first = 0; first < tile_columns * accesses; first += threads) {
    const int n = first + static_cast<int>(threadIdx.x), turned_row = n / accesses, word = n % accesses * words_at_once;
    const std::int64_t at_row = first_column + turned_row, at_column = first_row + word * rows_of_word;
    if (at_row >= columns || at_column >= rows) continue;
    const unsigned* const from = &turned[turned_row][word];
    // A streaming store: this is read much later and should not push the next reads out of the cache.
    __stcs(reinterpret_cast<uint4*>(transposed + at_row * rows + at_column), uint4{from[0], from[1], from[2], from[3]});
  }
}

// Transposes a tile that is already rounded. One block per tile.
__global__ void __launch_bounds__(threads)
    transpose_kernel(const std::uint8_t* values, std::int64_t rows, std::int64_t columns, std::uint8_t* transposed) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ TurnedTile turned;
  float sums[chunk];
  for (std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * tile_rows; first_row < rows;
       first_row += static_cast<std::int64_t>(gridDim.y) * tile_rows) {
    turn_tile<false, false>(RoundedAlready{values}, rows, columns, first_row,
                            static_cast<std::int64_t>(blockIdx.x) * tile_columns, nullptr, transposed, turned, sums);
    __syncthreads();  // before the next tile
  }
}

// Tiles of some columns: block (x, y) handles rows y, y + gridDim.y, ... With Sums it also writes their sums, before rounding,
// to partial[y, columns].
template <bool Values, bool Sums, typename Make>
__global__ void __launch_bounds__(threads, rounding_blocks)
    round_kernel(const std::uint16_t* x, std::int64_t rows, std::int64_t columns, const float* scale, std::uint8_t* values,
                 std::uint8_t* transposed, float* partial) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ TurnedTile turned;
  const Rounded<Make> source{x, 1.0f / scale[0]};  // exact
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * tile_columns;
  float sums[chunk] = {};
  for (std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * tile_rows; first_row < rows;
       first_row += static_cast<std::int64_t>(gridDim.y) * tile_rows) {
    turn_tile<Values, Sums>(source, rows, columns, first_row, first_column, values, transposed, turned, sums);
    __syncthreads();  // before the next tile
  }
  if constexpr (Sums) {
    __shared__ float of_warps[threads / warp_lanes][tile_columns];
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
    if (threadIdx.x < tile_columns && first_column + threadIdx.x < columns) {
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

// One block per tile of every tensor.
__global__ void __launch_bounds__(threads, rounding_blocks) round_tensors_kernel(RoundedTensors tensors) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ TurnedTile turned;
  int of = 0;
  while (of + 1 < tensors.count && tensors.list[of + 1].first_tile <= blockIdx.x) ++of;
  const RoundedTensor& t = tensors.list[of];
  const std::int64_t at = blockIdx.x - t.first_tile, tiles_of_row = (t.columns + tile_columns - 1) / tile_columns;
  float sums[chunk];
  turn_tile<true, false>(Rounded<AsRead>{t.x, 1.0f / t.scale[0]}, t.rows, t.columns, at / tiles_of_row * tile_rows,
                         at % tiles_of_row * tile_columns, t.values, t.transposed, turned, sums);
}

// Rows of partial sums: few compared to the summed rows, but enough to give every multiprocessor its blocks.
std::int64_t sums_of(StreamRef stream, std::int64_t row_tiles, std::int64_t column_tiles) {
  constexpr std::int64_t tiles_of_a_sum = 2;
  const std::int64_t all = ceil_div(std::int64_t{blocks_per_multiprocessor} * multiprocessors(stream.device()), column_tiles);
  return std::max(ceil_div(row_tiles, tiles_of_a_sum), std::min(row_tiles, all));
}

// Blocks for a kernel whose threads go through `items` together, at least `loads` each.
unsigned blocks_for(StreamRef stream, std::int64_t items) {
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
  const std::int64_t row_tiles = ceil_div(rows, tile_rows), column_tiles = ceil_div(columns, tile_columns);
  const auto run = [&](auto kernel, std::int64_t parts, float* partial) {
    const dim3 grid(grid_size(column_tiles), grid_size(parts));
    launch(stream, {grid, threads}, kernel, device_pointer<const std::uint16_t>(x), rows, columns, scale,
           device_pointer<std::uint8_t>(out.values), device_pointer<std::uint8_t>(out.transposed), partial);
  };
  if (!sums.out) {
    return run(out.values ? round_kernel<true, false, Make> : round_kernel<false, false, Make>,
               std::min(row_tiles, most_blocks_down), nullptr);
  }
  const std::int64_t fitting = static_cast<std::int64_t>(context.workspace().bytes() / sizeof(float)) / columns;
  require(fitting >= 1, "quantize: the workspace is smaller than one row");
  const std::int64_t parts = std::min({sums_of(stream, row_tiles, column_tiles), fitting, most_blocks_down});
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

// Calls act(some of them) on all operands, as many at once as fit one kernel.
template <typename Act>
void for_operands(std::span<const QuantizedTensor> operands, const Act& act) {
  constexpr std::size_t most = CudaOpContext::most_scales_at_once;
  for (; operands.size() > most; operands = operands.subspan(most)) act(operands.first(most));
  if (!operands.empty()) act(operands);
}

}  // namespace

void find_scale(StreamRef stream, OpContext& context, View x, View scale, OperandOf of) {
  require(aligned_16({x.data, scale.data}), "find_scale: tensors are aligned to 16 bytes");
  if (of == OperandOf::gelu) {
    const std::int64_t chunks = x.elements() / chunk;
    return launch(stream, {blocks_for(stream, chunks), threads}, gelu_scale_kernel,
                  ScaledTensor{device_pointer<const uint4>(x), chunks, device_pointer<unsigned>(scale)},
                  cuda_context(context).scale_counters(native(stream)));
  }
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
  const dim3 grid(grid_size(ceil_div(columns, tile_columns)), grid_size(std::min(ceil_div(rows, tile_rows), most_blocks_down)));
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
      tiles += ceil_div(rows, tile_rows) * ceil_div(columns, tile_columns);
    }
    launch(stream, {grid_size(tiles), threads}, round_tensors_kernel, tensors);
  });
}

}  // namespace plait::ops::cuda
