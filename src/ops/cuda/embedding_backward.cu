// The gradient of an embedding table without atomics. Occurrences of tokens are sorted by token (a stable radix sort keeps them
// in row order) and cut into chunks of equal length; one block sums each chunk. A token whose occurrences lie inside one chunk
// is finished there; one that spans chunks leaves a partial sum per chunk, which a second kernel adds in order. So the work is
// balanced however often a token repeats, and the order of every sum is fixed. Tokens are counted from the table's first one;
// those outside the table are sorted behind all others, as token `vocab`, and left out. The position table takes the same path
// where positions begin anew with each document; otherwise every position occurs in as many rows as there are sequences.
#include <algorithm>
#include <cub/device/device_radix_sort.cuh>

#include "ops/cuda/launch.h"
#include "ops/cuda/pack.cuh"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

constexpr int chunk = 32;           // occurrences per block
constexpr int loads_in_flight = 8;  // rows of dy fetched before their sums
constexpr int most_threads = 256;

__global__ void table_tokens_kernel(const int* tokens, std::int64_t first_token, int vocab, int count, int* table_tokens,
                                    int* rows) {
  await_previous_kernel();
  let_next_kernel_begin();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const std::int64_t token = tokens[i] - first_token;
  table_tokens[i] = token >= 0 && token < vocab ? static_cast<int>(token) : vocab;
  rows[i] = i;
}

__global__ void positions_kernel(const int* starts, int sequence, int count, int* positions, int* rows) {
  await_previous_kernel();
  let_next_kernel_begin();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  positions[i] = i % sequence - starts[i];
  rows[i] = i;
}

template <typename G, int Width>
__device__ void add_to_row(G* to, const float (&sums)[Width]) {
  float values[Width];
  load<Width>(to, values);
#pragma unroll
  for (int i = 0; i < Width; ++i) values[i] += sums[i];
  store<Width>(to, values);
}

// partial[chunk][0]: the sum of the run of equal tokens that continues from the chunk before; [1]: the sum of the run that
// starts in the chunk and continues in the next. Only slots of such runs are written.
template <typename T, typename G, int Width>
__global__ void __launch_bounds__(most_threads) chunk_sums_kernel(const int* sorted_tokens, const int* sorted_rows, int count,
                                                                  const T* dy, G* dtable, float* partial, int dim, int vocab) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ int tokens[chunk + 2];  // with the neighbours on both sides, -1 if there is none
  __shared__ int rows[chunk];
  const int first = static_cast<int>(blockIdx.x) * chunk;
  int length = min(chunk, count - first);
  for (int i = static_cast<int>(threadIdx.x); i < chunk + 2; i += static_cast<int>(blockDim.x)) {
    const int at = first + i - 1;
    tokens[i] = at >= 0 && at < count ? sorted_tokens[at] : -1;
    if (i < length) rows[i] = sorted_rows[first + i];
  }
  __syncthreads();
  const int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * Width;
  if (column >= dim) return;
  while (length > 0 && tokens[length] == vocab) --length;
  float sums[Width] = {};
  bool continued = tokens[0] == tokens[1];
  for (int group = 0; group < length; group += loads_in_flight) {
    Pack<T, Width> packs[loads_in_flight];
#pragma unroll
    for (int k = 0; k < loads_in_flight; ++k) {
      if (group + k < length) packs[k] = load_pack<Width>(dy + static_cast<std::int64_t>(rows[group + k]) * dim + column);
    }
#pragma unroll
    for (int k = 0; k < loads_in_flight; ++k) {
      const int i = group + k;
      if (i < length) {
#pragma unroll
        for (int j = 0; j < Width; ++j) sums[j] += to_float(packs[k].values[j]);
        const int token = tokens[i + 1];
        const bool run_ends = i + 1 == length || tokens[i + 2] != token;
        if (run_ends) {
          const bool continues = i + 1 == length && tokens[i + 2] == token;
          if (continued || continues) {
            const std::int64_t slot = std::int64_t{2} * blockIdx.x + (continued ? 0 : 1);
            store<Width>(partial + slot * dim + column, sums);
          } else {
            add_to_row<G, Width>(dtable + static_cast<std::int64_t>(token) * dim + column, sums);
          }
          continued = false;
#pragma unroll
          for (int j = 0; j < Width; ++j) sums[j] = 0.0f;
        }
      }
    }
  }
}

// The block of the chunk in which a spanning run starts adds that run's partial sums, in order.
template <typename G, int Width>
__global__ void __launch_bounds__(most_threads)
    spanning_runs_kernel(const int* sorted_tokens, int count, const float* partial, G* dtable, int dim, int vocab) {
  await_previous_kernel();
  let_next_kernel_begin();
  const int last = (static_cast<int>(blockIdx.x) + 1) * chunk - 1;  // last occurrence of this chunk
  if (last + 1 >= count) return;
  const int token = sorted_tokens[last];
  if (token == vocab || sorted_tokens[last + 1] != token) return;
  const int first = static_cast<int>(blockIdx.x) * chunk;
  if (first > 0 && sorted_tokens[first - 1] == token) return;  // the run started earlier
  int low = last + 1, high = count;                            // sorted: the first occurrence after the run, by bisection
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (sorted_tokens[middle] == token) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const int end = (low - 1) / chunk;  // the last chunk that holds part of the run
  const int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * Width;
  if (column >= dim) return;
  float sums[Width];
  load<Width>(partial + (std::int64_t{2} * blockIdx.x + 1) * dim + column, sums);
#pragma unroll 8
  for (int c = static_cast<int>(blockIdx.x) + 1; c <= end; ++c) {
    float values[Width];
    load<Width>(partial + std::int64_t{2} * c * dim + column, values);
#pragma unroll
    for (int j = 0; j < Width; ++j) sums[j] += values[j];
  }
  add_to_row<G, Width>(dtable + static_cast<std::int64_t>(token) * dim + column, sums);
}

// dpositions[s] (+)= Σ over the batch of dy[b, s].
template <typename T, typename G, int Width>
__global__ void __launch_bounds__(most_threads)
    position_sums_kernel(const T* dy, G* dpositions, int batch, int sequence, int dim, bool accumulate) {
  await_previous_kernel();
  let_next_kernel_begin();
  const int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * Width;
  if (column >= dim) return;
  const std::int64_t offset = static_cast<std::int64_t>(blockIdx.x) * dim + column,
                     stride = static_cast<std::int64_t>(sequence) * dim;
  float sums[Width] = {};
#pragma unroll 8
  for (int b = 0; b < batch; ++b) {
    float values[Width];
    load<Width>(dy + b * stride + offset, values);
#pragma unroll
    for (int j = 0; j < Width; ++j) sums[j] += values[j];
  }
  if (accumulate) {
    add_to_row<G, Width>(dpositions + offset, sums);
  } else {
    store<Width>(dpositions + offset, sums);
  }
}

// The scratch of one call, carved from the workspace.
struct Scratch {
  int *tokens, *rows, *sorted_tokens, *sorted_rows;
  void* sort;
  std::size_t sort_bytes;
  float* partial;
};

Scratch carve(const View& workspace, int count, int chunks, int dim, int key_bits) {
  Scratch scratch{};
  check(cub::DeviceRadixSort::SortPairs(nullptr, scratch.sort_bytes, static_cast<const int*>(nullptr),
                                        static_cast<int*>(nullptr), static_cast<const int*>(nullptr),
                                        static_cast<int*>(nullptr), count, 0, key_bits));
  std::size_t used = 0;
  const auto take = [&](std::size_t bytes) {
    void* memory = static_cast<char*>(workspace.data) + used;
    used += static_cast<std::size_t>(round_up(static_cast<std::int64_t>(bytes), 256));
    return memory;
  };
  const std::size_t index_bytes = static_cast<std::size_t>(count) * sizeof(int);
  scratch.tokens = static_cast<int*>(take(index_bytes));
  scratch.rows = static_cast<int*>(take(index_bytes));
  scratch.sorted_tokens = static_cast<int*>(take(index_bytes));
  scratch.sorted_rows = static_cast<int*>(take(index_bytes));
  scratch.sort = take(scratch.sort_bytes);
  scratch.partial = static_cast<float*>(
      take(std::size_t{2} * static_cast<std::size_t>(chunks) * static_cast<std::size_t>(dim) * sizeof(float)));
  require(used <= workspace.bytes(), "embedding_backward: needs " + std::to_string(used) + " bytes of workspace, has " +
                                         std::to_string(workspace.bytes()) + "; use a smaller micro-batch");
  return scratch;
}

// Threads per block, and the blocks side by side over the columns of a row.
struct Columns {
  Columns(int dim, int width)
      : threads(static_cast<unsigned>(std::min<std::int64_t>(most_threads, round_up(ceil_div(dim, width), 32)))),
        slices(grid_size(ceil_div(dim, std::int64_t{threads} * width))) {}
  unsigned threads, slices;
};

// Adds the rows of dy to those of a table. `write_indices(to, rows)` enqueues the table row of each, and 0, 1, ...
template <typename T, typename G, int Width, typename WriteIndices>
void add_to_table(StreamRef stream, OpContext& context, const View& dy_rows, const View& table, bool accumulate,
                  const WriteIndices& write_indices) {
  const int count = static_cast<int>(dy_rows.shape[0]), dim = static_cast<int>(dy_rows.shape[1]);
  const int vocab = static_cast<int>(table.shape[0]);
  const Columns columns(dim, Width);
  const T* dy = device_pointer<T>(dy_rows);
  G* dtable = device_pointer<G>(table);
  if (!accumulate) stream.zero(dtable, table.bytes());
  int key_bits = 1;
  while (key_bits < 31 && (1 << key_bits) <= vocab) ++key_bits;
  const int chunks = static_cast<int>(ceil_div(count, chunk));
  Scratch scratch = carve(context.workspace(), count, chunks, dim, key_bits);
  write_indices(scratch.tokens, scratch.rows);
  check(cub::DeviceRadixSort::SortPairs(scratch.sort, scratch.sort_bytes, scratch.tokens, scratch.sorted_tokens, scratch.rows,
                                        scratch.sorted_rows, count, 0, key_bits, native(stream)));
  const dim3 grid(grid_size(chunks), columns.slices);
  launch(stream, {grid, columns.threads}, chunk_sums_kernel<T, G, Width>, scratch.sorted_tokens, scratch.sorted_rows, count, dy,
         dtable, scratch.partial, dim, vocab);
  launch(stream, {grid, columns.threads}, spanning_runs_kernel<G, Width>, scratch.sorted_tokens, count, scratch.partial, dtable,
         dim, vocab);
}

template <typename T, typename G, int Width>
void backward(StreamRef stream, OpContext& context, const EmbeddingBackward& args) {
  const int count = static_cast<int>(args.dy.shape[0]), dim = static_cast<int>(args.dy.shape[1]);
  const int sequence = static_cast<int>(args.sequence);
  if (args.dpositions_table && args.starts) {
    add_to_table<T, G, Width>(stream, context, args.dy, args.dpositions_table, args.accumulate_positions,
                              [&](int* positions, int* rows) {
                                launch(stream, {grid_size(ceil_div(count, 256)), 256}, positions_kernel,
                                       device_pointer<int>(args.starts), sequence, count, positions, rows);
                              });
  } else if (args.dpositions_table) {
    const Columns columns(dim, Width);
    launch(stream, {dim3(grid_size(sequence), columns.slices), columns.threads}, position_sums_kernel<T, G, Width>,
           device_pointer<T>(args.dy), device_pointer<G>(args.dpositions_table), count / sequence, sequence, dim,
           args.accumulate_positions);
    if (const std::int64_t unused = args.dpositions_table.shape[0] - sequence; unused > 0 && !args.accumulate_positions) {
      stream.zero(device_pointer<G>(args.dpositions_table) + args.sequence * dim,
                  static_cast<std::size_t>(unused * dim) * sizeof(G));
    }
  }
  add_to_table<T, G, Width>(stream, context, args.dy, args.dtokens_table, args.accumulate_tokens, [&](int* tokens, int* rows) {
    launch(stream, {grid_size(ceil_div(count, 256)), 256}, table_tokens_kernel, device_pointer<int>(args.tokens),
           args.first_token, static_cast<int>(args.dtokens_table.shape[0]), count, tokens, rows);
  });
}

}  // namespace

void embedding_backward(StreamRef stream, OpContext& context, const EmbeddingBackward& args) {
  if (args.dy.shape[0] == 0) {
    if (!args.accumulate_tokens) stream.zero(args.dtokens_table.data, args.dtokens_table.bytes());
    return;
  }
  with_type(args.dy.dtype, [&](auto t) {
    with_type(args.dtokens_table.dtype, [&](auto g) {
      using T = decltype(t);
      using G = decltype(g);
      const bool vectorised = args.dy.shape[1] % pack_width<T> == 0 &&
                              aligned_16({args.dy.data, args.dtokens_table.data, args.dpositions_table.data});
      with_width<T>(vectorised, [&](auto w) { backward<T, G, decltype(w)::value>(stream, context, args); });
    });
  });
}

}  // namespace plait::ops::cuda
