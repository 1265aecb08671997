#include "ops/cuda/launch.h"
#include "ops/cuda/pack.cuh"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

template <typename T, int Width>
__global__ void __launch_bounds__(256)
    embedding_kernel(const int* tokens, const int* starts, const T* tokens_table, const T* positions_table, T* y,
                     std::int64_t rows, int dim, int sequence, int threads_per_row, std::int64_t first_token,
                     std::int64_t table_rows) {
  await_previous_kernel();
  let_next_kernel_begin();
  const int rows_per_block = static_cast<int>(blockDim.x) / threads_per_row;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * rows_per_block + threadIdx.x / threads_per_row;
  if (row >= rows) return;
  const std::int64_t entry = tokens[row] - first_token;
  const bool in_table = entry >= 0 && entry < table_rows;
  const T* token_row = tokens_table + entry * dim;
  const std::int64_t position = row % sequence - (starts ? starts[row] : 0);
  const T* position_row = positions_table ? positions_table + position * dim : nullptr;
  for (int i = static_cast<int>(threadIdx.x) % threads_per_row * Width; i < dim; i += threads_per_row * Width) {
    Pack<T, Width> pack{};
    if (in_table) pack = load_pack<Width>(token_row + i);
    if (position_row) {
      float values[Width], position[Width];
      unpack(pack, values);
      load<Width>(position_row + i, position);
#pragma unroll
      for (int j = 0; j < Width; ++j) values[j] += position[j];
      pack = make_pack<T>(values);
    }
    store_pack(y + row * dim + i, pack);
  }
}

}  // namespace

void embedding_forward(StreamRef stream, const EmbeddingForward& args) {
  const std::int64_t rows = args.y.shape[0], dim = args.y.shape[1];
  if (rows == 0) return;
  with_type(args.y.dtype, [&](auto t) {
    using T = decltype(t);
    const bool vectorised =
        dim % pack_width<T> == 0 && aligned_16({args.tokens_table.data, args.positions_table.data, args.y.data});
    with_width<T>(vectorised, [&](auto w) {
      constexpr int width = decltype(w)::value;
      constexpr int threads = 256, threads_per_row = 64;
      launch(stream, {grid_size(ceil_div(rows, threads / threads_per_row)), threads}, embedding_kernel<T, width>,
             device_pointer<int>(args.tokens), device_pointer<int>(args.starts), device_pointer<T>(args.tokens_table),
             device_pointer<T>(args.positions_table), device_pointer<T>(args.y), rows, static_cast<int>(dim),
             static_cast<int>(args.sequence), threads_per_row, args.first_token, args.tokens_table.shape[0]);
    });
  });
}

}  // namespace plait::ops::cuda
