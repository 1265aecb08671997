// Shared parts of every kernel launch in this folder: how kernels follow each other, the native stream, type and width
// dispatch.
//
// Kernels of this folder follow each other closely. launch() lets the blocks of a kernel take their places while the kernel
// before it in the stream still runs (programmatic dependent launch, from compute capability 9.0 on). There they wait until
// that kernel is complete and all its writes can be read. So kernels still run in the order of the stream, also where one waits
// for another, and likewise relative to copies, events and the kernels of libraries: only the pause between two of our kernels
// gets shorter.
//
// For that, every kernel here begins with these two lines, in this order:
//
//   await_previous_kernel();
//   let_next_kernel_begin();
//
// * Before the first line no thread may touch global memory, and no thread may return. A kernel waits only for the one directly
//   before it. That one has waited itself, and so on: a single kernel that does not wait breaks this chain for all behind it.
// * The second line comes after the first. So a kernel never takes a place before the last but one is complete.
// * Neither __restrict__ nor __ldg: with them the compiler may move a read to before the first line.
// * Kernels are launched by launch() alone: any other launch in this folder would have to keep the same rules.
//
// tests/build/kernels_test.py checks the sources for all four.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
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

// Waits until the kernel before this one in the stream is complete and its writes can be read.
__device__ inline void await_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

// Lets the next kernel occupy free room once all blocks of this one have come here or ended.
__device__ inline void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// True if the kernels of this folder wait as written, on the current device. It depends on the target they were compiled for:
// code for compute capability 8.0 does not wait, not even on newer devices. All kernels are compiled for the same targets.
inline bool kernels_wait(const void* any_kernel, Device device) {
  struct Answer {
    int device = -1;
    bool wait = false;
  };
  thread_local Answer last;  // the query takes longer than a launch
  if (last.device != device.index) {
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, any_kernel));
    last = {device.index, attributes.ptxVersion >= 90};
  }
  return last.wait;
}

// The launch shape of a kernel.
struct Grid {
  Grid(dim3 number_of_blocks, dim3 threads_of_block, std::size_t dynamic_shared_bytes = 0, unsigned blocks_of_cluster = 1,
       std::source_location from = std::source_location::current())
      : blocks(number_of_blocks),
        threads(threads_of_block),
        shared_bytes(dynamic_shared_bytes),
        cluster(blocks_of_cluster),
        where(from) {}
  dim3 blocks, threads;
  std::size_t shared_bytes;
  unsigned cluster;  // blocks along x that share memory; above 1 from compute capability 9.0 on
  std::source_location where;
};

// Enqueues a kernel that begins as said above. Arguments are converted to the kernel's parameters. DeviceError where the launch
// fails, with the source location of the Grid.
template <typename... Parameters>
void launch(StreamRef stream, const Grid& grid, void (*kernel)(Parameters...), std::type_identity_t<Parameters>... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = native(stream);
  config.attrs = attributes;
  if (kernels_wait(reinterpret_cast<const void*>(kernel), stream.device())) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = grid.cluster;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, arguments...);
  if (status != cudaSuccess) static_cast<void>(cudaGetLastError());  // so that no later check reports this error
  check(status, grid.where);
}

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

// Calls f(T{}) with the device element type of a compute tensor.
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

// The number of blocks of a kernel that run at once. Kernels that stride over blocks launch this many, so that none runs alone
// at the end.
template <typename Kernel>
std::int64_t resident_blocks(StreamRef stream, Kernel kernel, std::int64_t threads, std::size_t shared_bytes = 0) {
  int of_multiprocessor = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_multiprocessor, kernel, static_cast<int>(threads), shared_bytes));
  return std::int64_t{of_multiprocessor} * multiprocessors(stream.device());
}

// The limit on static plus dynamic shared memory of one block, once cudaFuncSetAttribute has allowed it.
inline std::int64_t most_shared_bytes(Device device) {
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index));
  return bytes;
}

}  // namespace plait::ops::cuda
