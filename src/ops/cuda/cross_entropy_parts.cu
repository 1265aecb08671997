// Cross-entropy over a vocabulary that is split over ranks. One block per row: a row's part is short enough, and there are
// enough rows, for registers and occupancy to hide the latency that whole rows need shared memory for.
#include "ops/cuda/cross_entropy.cuh"
#include "ops/cuda/launch.h"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

// The part's column of a token, -1 if it has none.
__device__ inline int column_of(int token, std::int64_t first_token, int vocab) {
  const std::int64_t column = token - first_token;
  return column >= 0 && column < vocab ? static_cast<int>(column) : -1;
}

template <typename T, int Width>
__global__ void __launch_bounds__(row_threads) statistics_kernel(const T* logits, const int* targets, float* statistics,
                                                                 int columns, int vocab, std::int64_t first_token) {
  await_previous_kernel();
  let_next_kernel_begin();
  __shared__ Softmax shared[row_threads / warp_lanes];
  const std::int64_t row_index = blockIdx.x;
  const T* row = logits + row_index * columns;
  const Softmax softmax = block_merge<T>(thread_softmax<T, Width, row_threads>(row, vocab, 0, vocab), shared);
  if (threadIdx.x != 0) return;
  const int target = column_of(targets[row_index], first_token, vocab);
  float* of_row = statistics + row_index * 3;
  of_row[0] = softmax.maximum;
  of_row[1] = softmax.sum;
  of_row[2] = target < 0 ? 0.0f : to_float(row[target]);
}

template <typename T>
struct FinishArguments {
  T* logits;
  const int* targets;
  const float* statistics;
  float* losses;
  std::int64_t rows, first_token;
  int ranks, columns, vocab;
  float scale;
  bool write_gradient;
};

template <typename T, int Width>
__global__ void __launch_bounds__(row_threads) finish_kernel(FinishArguments<T> args) {
  await_previous_kernel();
  let_next_kernel_begin();
  const std::int64_t row_index = blockIdx.x;
  const int target = args.targets[row_index];
  // Every thread merges by itself: a few exponentials instead of a barrier. They are computed exactly in float, for the loss.
  Softmax softmax;
  float target_logit = 0.0f;
#pragma unroll 4
  for (int rank = 0; rank < args.ranks; ++rank) {
    const float* of_row = args.statistics + (rank * args.rows + row_index) * 3;
    softmax = merge<float>(softmax, {of_row[0], of_row[1]});
    target_logit += of_row[2];
  }
  if (threadIdx.x == 0) args.losses[row_index] = target < 0 ? 0.0f : logf(softmax.sum) + softmax.maximum - target_logit;
  if (!args.write_gradient) return;

  T* row = args.logits + row_index * args.columns;
  const int vocab = target < 0 ? 0 : args.vocab;  // an ignored row is not even read
  const int target_column = column_of(target, args.first_token, vocab);
  const float factor = args.scale / softmax.sum;
  constexpr int stride = row_threads * Width;
  for (int first = static_cast<int>(threadIdx.x) * Width; first < args.columns; first += packs_per_step * stride) {
    Pack<T, Width> packs[packs_per_step];
#pragma unroll
    for (int k = 0; k < packs_per_step; ++k) {
      if (first + k * stride < vocab) packs[k] = load_pack<Width>(row + first + k * stride);
    }
#pragma unroll
    for (int k = 0; k < packs_per_step; ++k) {
      const int i = first + k * stride;
      if (i < vocab) {
        mask_padding(packs[k], i, vocab);
        store_pack(row + i, gradient<T, Width>(packs[k], i, softmax.maximum, factor, args.scale, target_column));
      } else if (i < args.columns) {
        store_pack(row + i, Pack<T, Width>{});
      }
    }
  }
}

// Calls f(T{}, width) for rows of `logits`.
template <typename F>
void with_row_type(const View& logits, F&& f) {
  with_type(logits.dtype, [&](auto t) {
    using T = decltype(t);
    with_width<T>(logits.shape[1] % pack_width<T> == 0 && aligned_16({logits.data}), [&](auto width) { f(t, width); });
  });
}

}  // namespace

void cross_entropy_statistics(StreamRef stream, const CrossEntropyStatistics& args) {
  const std::int64_t rows = args.logits.shape[0];
  if (rows == 0) return;
  with_row_type(args.logits, [&](auto t, auto width) {
    using T = decltype(t);
    launch(stream, {grid_size(rows), row_threads}, statistics_kernel<T, decltype(width)::value>, device_pointer<T>(args.logits),
           device_pointer<int>(args.targets), device_pointer<float>(args.statistics), static_cast<int>(args.logits.shape[1]),
           static_cast<int>(args.vocab), args.first_token);
  });
}

void cross_entropy_finish(StreamRef stream, const CrossEntropyFinish& args) {
  const std::int64_t rows = args.logits.shape[0];
  if (rows == 0) return;
  with_row_type(args.logits, [&](auto t, auto width) {
    using T = decltype(t);
    const FinishArguments<T> arguments{device_pointer<T>(args.logits),
                                       device_pointer<int>(args.targets),
                                       device_pointer<float>(args.statistics),
                                       device_pointer<float>(args.losses),
                                       rows,
                                       args.first_token,
                                       static_cast<int>(args.statistics.shape[0]),
                                       static_cast<int>(args.logits.shape[1]),
                                       static_cast<int>(args.vocab),
                                       args.scale,
                                       args.write_gradient};
    launch(stream, {grid_size(rows), row_threads}, finish_kernel<T, decltype(width)::value>, arguments);
  });
}

}  // namespace plait::ops::cuda
