#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "comm/p2p/cuda/counters.h"
#include "comm/p2p/mover.h"
#include "core/cuda_check.h"
#include "core/error.h"

namespace plait::comm::p2p {
namespace {

constexpr int threads = 256;
constexpr int most_blocks = 264;  // two on each SM of an H200: enough for its memory, and others get their turn

struct Parts {
  const std::byte* part[most_parts];
  int count;
};

// Packs of sixteen bytes, used where everything is so aligned.
template <typename T>
struct alignas(16) Pack {
  T values[16 / sizeof(T)];
};

template <typename T>
using SumOf = std::conditional_t<std::is_same_v<T, __nv_bfloat16>, float, T>;

template <typename T, bool maximum>
__device__ SumOf<T> combined(SumOf<T> a, SumOf<T> b) {
  if constexpr (maximum) {
    return a < b || a != a ? b : a;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return static_cast<T>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));  // signed overflow would be undefined
  } else {
    return a + b;
  }
}

template <typename T, bool maximum, typename Unit>
__global__ void __launch_bounds__(threads) combine_parts(Unit* out, Parts parts, std::int64_t units) {
  constexpr int width = sizeof(Unit) / sizeof(T);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < units; i += step) {
    SumOf<T> sums[width];
    for (int p = 0; p < parts.count; ++p) {
      const Unit unit = reinterpret_cast<const Unit*>(parts.part[p])[i];
      const T* values = reinterpret_cast<const T*>(&unit);
#pragma unroll
      for (int k = 0; k < width; ++k) {
        const auto value = static_cast<SumOf<T>>(values[k]);
        sums[k] = p == 0 ? value : combined<T, maximum>(sums[k], value);
      }
    }
    Unit unit;
    T* values = reinterpret_cast<T*>(&unit);
#pragma unroll
    for (int k = 0; k < width; ++k) values[k] = static_cast<T>(sums[k]);
    out[i] = unit;
  }
}

struct CountedParts {
  CountedPart list[link_collectives::most_ranks_by_one_kernel];
  int count;
};

// One block. The others push their data while it runs, so it reads them only after their counters.
template <typename T, bool maximum>
__global__ void __launch_bounds__(threads) combine_counted_parts(T* data, CountedParts parts, int count) {
  const auto rank = static_cast<int>(threadIdx.x);
  const bool is_other = rank < parts.count && parts.list[rank].arrived;
  if (is_other) {
    const CountedCopy& pushed = parts.list[rank].pushed;
    if (pushed.freed.counter) set(pushed.freed);
    wait_for(pushed.awaited);
  }
  __syncthreads();
  for (int p = 0; p < parts.count; ++p) {
    if (!parts.list[p].arrived) continue;
    auto* const to = static_cast<T*>(parts.list[p].pushed.copy.to);
    for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) to[i] = data[i];
  }
  __threadfence_system();
  __syncthreads();
  if (is_other) {
    set(parts.list[rank].pushed.counter);
    wait_for(parts.list[rank].arrival);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) {
    SumOf<T> sum;
    for (int p = 0; p < parts.count; ++p) {
      const std::byte* const arrived = parts.list[p].arrived;
      const T stored = arrived ? __ldcv(reinterpret_cast<const T*>(arrived) + i) : data[i];
      const auto value = static_cast<SumOf<T>>(stored);
      sum = p == 0 ? value : combined<T, maximum>(sum, value);
    }
    data[i] = static_cast<T>(sum);
  }
}

template <typename T, bool maximum, typename Unit>
void launch_units(cudaStream_t stream, void* out, const Parts& parts, std::int64_t units) {
  if (units == 0) return;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(most_blocks, (units + threads - 1) / threads));
  combine_parts<T, maximum><<<blocks, threads, 0, stream>>>(static_cast<Unit*>(out), parts, units);
  check(cudaGetLastError());
}

template <typename T, bool maximum>
void launch(cudaStream_t stream, void* out, Parts parts, std::int64_t count) {
  constexpr std::int64_t width = 16 / sizeof(T);
  const auto aligned = [](const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; };
  const bool packs = aligned(out) && std::all_of(parts.part, parts.part + parts.count, aligned);
  const std::int64_t packed = packs ? count / width * width : 0;
  launch_units<T, maximum, Pack<T>>(stream, out, parts, packed / width);
  // The elements that do not fill a pack.
  for (int p = 0; p < parts.count; ++p) parts.part[p] += packed * static_cast<std::int64_t>(sizeof(T));
  launch_units<T, maximum, T>(stream, static_cast<T*>(out) + packed, parts, count - packed);
}

template <typename T>
void launch(cudaStream_t stream, View out, const Parts& parts, Reduction reduction) {
  if (reduction == Reduction::sum) return launch<T, false>(stream, out.data, parts, out.elements());
  return launch<T, true>(stream, out.data, parts, out.elements());
}

template <typename T>
void launch(cudaStream_t stream, View data, const CountedParts& parts, Reduction reduction) {
  auto* const values = static_cast<T*>(data.data);
  const auto count = static_cast<int>(data.elements());
  if (reduction == Reduction::sum) {
    combine_counted_parts<T, false><<<1, threads, 0, stream>>>(values, parts, count);
  } else {
    combine_counted_parts<T, true><<<1, threads, 0, stream>>>(values, parts, count);
  }
  check(cudaGetLastError());
}

// Calls f with a value of the type.
template <typename F>
void with_type(DType type, const F& f) {
  switch (type) {
    case DType::f32: return f(float{});
    case DType::f64: return f(double{});
    case DType::bf16: return f(__nv_bfloat16{});
    case DType::i32: return f(std::int32_t{});
    case DType::u8:
    case DType::f16:
    case DType::e4m3: break;
  }
  throw InternalError("combine: numbers only");
}

template <typename T, bool maximum>
void load() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, combine_counted_parts<T, maximum>));
  check(cudaFuncGetAttributes(&attributes, combine_parts<T, maximum, Pack<T>>));
  check(cudaFuncGetAttributes(&attributes, combine_parts<T, maximum, T>));
}

template <typename... T>
void load_all() {
  (load<T, false>(), ...);
  (load<T, true>(), ...);
}

}  // namespace

void load_combining_kernels() { load_all<float, double, __nv_bfloat16, std::int32_t>(); }

void combine_by_kernel(StreamRef stream, View out, std::span<const std::byte* const> parts, Reduction reduction) {
  Parts list{{}, static_cast<int>(parts.size())};
  std::copy(parts.begin(), parts.end(), list.part);
  auto* const native = static_cast<cudaStream_t>(stream.native());
  with_type(out.dtype, [&](auto value) { launch<decltype(value)>(native, out, list, reduction); });
}

void combine_between_counters(StreamRef stream, View data, std::span<const CountedPart> parts, Reduction reduction) {
  require(
      parts.size() <= link_collectives::most_ranks_by_one_kernel && data.bytes() <= link_collectives::most_summed_by_one_kernel,
      "combine_between_counters: too much at once");
  CountedParts list{{}, static_cast<int>(parts.size())};
  std::ranges::copy(parts, list.list);
  auto* const native = static_cast<cudaStream_t>(stream.native());
  with_type(data.dtype, [&](auto value) { launch<decltype(value)>(native, data, list, reduction); });
}

}  // namespace plait::comm::p2p
