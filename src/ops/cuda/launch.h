// What every kernel launch in this folder shares: the native stream, the launch check, type and width dispatch.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <string>
#include <type_traits>

#include "core/cuda_check.h"
#include "core/error.h"
#include "core/stream.h"
#include "core/view.h"

namespace plait::ops::cuda {

inline cudaStream_t native(StreamRef stream) { return static_cast<cudaStream_t>(stream.native()); }

// After every <<<>>>: a launch reports its errors through the last error only.
inline void check_launch(std::source_location where = std::source_location::current()) { check(cudaGetLastError(), where); }

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

inline unsigned grid_size(std::int64_t blocks, std::source_location where = std::source_location::current()) {
  require(blocks > 0 && blocks <= 0x7fffffff, "a kernel's grid of " + std::to_string(blocks) + " blocks", where);
  return static_cast<unsigned>(blocks);
}

// The element type of device code for a DType.
template <typename T>
T* device_pointer(const View& view) {
  return static_cast<T*>(view.data);
}

// Calls f(T{}) with the device element type of a tensor that is computed with.
template <typename F>
void with_type(DType dtype, F&& f, std::source_location where = std::source_location::current()) {
  switch (dtype) {
    case DType::f32: return f(float{});
    case DType::bf16: return f(__nv_bfloat16{});
    default: require(false, "dtype " + std::string(to_string(dtype)) + " has no CUDA kernel", where);
  }
}

// Elements of T in one 16-byte access.
template <typename T>
inline constexpr int pack_width = 16 / static_cast<int>(sizeof(T));

inline bool aligned_16(std::initializer_list<const void*> pointers) {
  for (const void* pointer : pointers) {
    if (reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0) return false;
  }
  return true;
}

// Calls f with the number of elements a thread handles at once, as a compile-time constant: a full 16-byte pack, or 1 where
// rows or pointers are not aligned.
template <typename T, typename F>
void with_width(bool vectorised, F&& f) {
  if (vectorised) return f(std::integral_constant<int, pack_width<T>>{});
  f(std::integral_constant<int, 1>{});
}

inline int multiprocessors(Device device) {
  int count = 0;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device.index));
  return count;
}

// Static and dynamic shared memory of one block together, once cudaFuncSetAttribute has allowed it.
inline std::int64_t most_shared_bytes(Device device) {
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index));
  return bytes;
}

}  // namespace plait::ops::cuda
