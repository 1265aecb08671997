// The counter counts what it says, whoever makes the call.
#include "cuda_calls/cuda_calls.h"

#include <gmock/gmock.h>

#include <thread>

#include "core/device.h"
#include "core/error.h"
#include "core/stream.h"
#include "cuda_calls/call_kind.h"

namespace plait {
namespace {

TEST(CallKindTest, SortsDriverFunctions) {
  for (const char* name : {"cuStreamSynchronize", "cuStreamSynchronize_ptsz", "cuEventSynchronize", "cuCtxSynchronize_v2",
                           "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemcpy", "cuMemcpyPeer_ptds"}) {
    EXPECT_EQ(call_kind(name), CallKind::synchronization) << name;
  }
  for (const char* name : {"cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocFromPoolAsync_ptsz", "cuMemAllocManaged",
                           "cuMemAllocHost_v2", "cuMemHostAlloc", "cuMemCreate", "cuMemHostRegister_v2"}) {
    EXPECT_EQ(call_kind(name), CallKind::allocation) << name;
  }
  for (const char* name : {"cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeHost", "cuMemRelease", "cuMemUnmap"}) {
    EXPECT_EQ(call_kind(name), CallKind::free) << name;
  }
  for (const char* name : {"cuLaunchKernel", "cuLaunchKernelEx_ptsz", "cuGraphLaunch"}) {
    EXPECT_EQ(call_kind(name), CallKind::launch) << name;
  }
  for (const char* name : {"cuMemcpyAsync", "cuMemcpyDtoDAsync_v2", "cuMemcpyPeerAsync", "cuMemcpyBatchAsync_v2",
                           "cuStreamQuery", "cuMemsetD8Async", "cuLaunchHostFunc", "cuStreamWaitEvent", "cuMemGetInfo_v2"}) {
    EXPECT_EQ(call_kind(name), CallKind::other) << name;
  }
}

class GpuCudaCallsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (cuda_device_count(&why) == 0) GTEST_SKIP() << why;
    make_current(device_);
    DeviceMemory(device_).allocate(256);  // the context exists before anything is counted
  }
  Device device_{DeviceKind::cuda, 0};
};

TEST_F(GpuCudaCallsTest, AsynchronousWorkCountsNothing) {
  DeviceMemory memory(device_);
  const Buffer device = memory.allocate(4096), host = memory.allocate(4096, MemoryKind::pinned_host);
  Stream one(device_), two(device_);
  Event event(device_);
  CudaCallCounter counter;
  one.ref().zero(device.data(), 4096);
  one.ref().copy(host.data(), device.data(), 4096);
  one.ref().record(event);
  two.ref().wait(event);
  static_cast<void>(event.is_complete());
  const CudaCallCounts counts = counter.stop();
  EXPECT_EQ(counts.synchronizations, 0) << counts.report();
  EXPECT_EQ(counts.allocations, 0) << counts.report();
  EXPECT_EQ(counts.frees, 0) << counts.report();
  EXPECT_GE(counts.calls.size(), 4u) << "the counter saw too little: it would count no synchronization either";
}

TEST_F(GpuCudaCallsTest, EverySynchronizationCounts) {
  Stream stream(device_);
  Event event(device_);
  stream.ref().record(event);
  CudaCallCounter counter;
  stream.ref().synchronize();
  event.synchronize();
  const CudaCallCounts counts = counter.stop();
  EXPECT_EQ(counts.synchronizations, 2) << counts.report();
  EXPECT_THAT(counts.report(),
              testing::AllOf(testing::HasSubstr("cuStreamSynchronize"), testing::HasSubstr("cuEventSynchronize")));
}

TEST_F(GpuCudaCallsTest, EveryAllocationAndFreeCounts) {
  DeviceMemory memory(device_);
  CudaCallCounter counter;
  for (int i = 0; i < 3; ++i) {
    const Buffer device = memory.allocate(1 << 20), host = memory.allocate(1 << 20, MemoryKind::pinned_host);
  }
  const CudaCallCounts counts = counter.stop();
  EXPECT_EQ(counts.allocations, 6) << counts.report();
  EXPECT_EQ(counts.frees, 6) << counts.report();
}

TEST_F(GpuCudaCallsTest, CallsOfOtherThreadsCountAndCallsAfterStopDoNot) {
  Stream stream(device_);
  CudaCallCounter counter;
  std::thread([&] {
    make_current(device_);
    stream.ref().synchronize();
  }).join();
  const CudaCallCounts counts = counter.stop();
  EXPECT_EQ(counts.synchronizations, 1) << counts.report();
  stream.ref().synchronize();
  EXPECT_EQ(counter.stop().synchronizations, 1);
}

TEST_F(GpuCudaCallsTest, ASecondCounterIsRefusedWhileOneRuns) {
  CudaCallCounter counter;
  EXPECT_THROW(CudaCallCounter(), DeviceError);
  static_cast<void>(counter.stop());
  EXPECT_NO_THROW(CudaCallCounter());
}

}  // namespace
}  // namespace plait
