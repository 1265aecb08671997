// Counts what a training step must not do: block the host on the GPU, allocate, free.
//
//   CudaCallCounter counter;      // every CUDA call of the process from here on, of all threads
//   run_one_step();
//   const CudaCallCounts counts = counter.stop();
//   EXPECT_EQ(counts.synchronizations, 0) << counts.report();
//
// It listens to the driver API through CUPTI, below the runtime and below cuBLAS, cuDNN and NCCL, so no library can hide a
// call.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace plait {

struct CudaCallCounts {
  std::int64_t synchronizations = 0;  // waits for a stream, an event or the context, and copies that are not asynchronous
  std::int64_t allocations = 0;       // device, pinned, pooled and virtual memory; creation of memory pools
  std::int64_t frees = 0;
  std::int64_t launches = 0;                  // kernels and graphs: zero means that the counter saw nothing at all
  std::map<std::string, std::int64_t> calls;  // how often each driver function was called, of all kinds

  std::string report() const;  // the counted synchronizations, allocations and frees by name, for a failing test's message
};

// At most one at a time in a process (CUPTI has one subscriber). DeviceError when CUPTI refuses, or in a build without CUDA.
class CudaCallCounter {
 public:
  CudaCallCounter();
  ~CudaCallCounter();
  CudaCallCounter(const CudaCallCounter&) = delete;
  CudaCallCounter& operator=(const CudaCallCounter&) = delete;
  CudaCallCounts stop();  // ends the counting; later calls return the same counts

 private:
  class Subscription;
  std::unique_ptr<Subscription> subscription_;
};

}  // namespace plait
