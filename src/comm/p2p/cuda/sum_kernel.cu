#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "comm/p2p/sum.h"
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

// Sixteen bytes at a time where everything lies on such a boundary.
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
  // What does not fill a pack.
  for (int p = 0; p < parts.count; ++p) parts.part[p] += packed * static_cast<std::int64_t>(sizeof(T));
  launch_units<T, maximum, T>(stream, static_cast<T*>(out) + packed, parts, count - packed);
}

template <typename T>
void launch(cudaStream_t stream, View out, const Parts& parts, Reduction reduction) {
  if (reduction == Reduction::sum) return launch<T, false>(stream, out.data, parts, out.elements());
  return launch<T, true>(stream, out.data, parts, out.elements());
}

template <typename T, bool maximum>
void load() {
  cudaFuncAttributes attributes;
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
  switch (out.dtype) {
    case DType::f32: return launch<float>(native, out, list, reduction);
    case DType::f64: return launch<double>(native, out, list, reduction);
    case DType::bf16: return launch<__nv_bfloat16>(native, out, list, reduction);
    case DType::i32: return launch<std::int32_t>(native, out, list, reduction);
    case DType::u8:
    case DType::f16:
    case DType::e4m3: break;
  }
  throw InternalError("combine: numbers only");
}

}  // namespace plait::comm::p2p
