// CUDA streams, events and memory.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/cuda_check.h"
#include "core/enqueued_counters.h"
#include "core/error.h"
#include "core/format.h"
#include "core/stream_impl.h"

namespace plait {
namespace {

// Streams of one device share hardware queues, eight unless the environment says otherwise, and work queued behind a stream
// that waits for another GPU waits too: for ever, if that GPU waits for it. A rank has more streams than that. CUDA reads this
// variable when it starts, hence before main(). A smaller number in the environment (Megatron-LM asks for 1) is overridden.
constexpr int hardware_queues = 32;  // the maximum
[[maybe_unused]] const bool queues_of_their_own = [] {
  const char* const name = "CUDA_DEVICE_MAX_CONNECTIONS";
  const char* const given = std::getenv(name);
  if (!given || std::atoi(given) < hardware_queues) ::setenv(name, std::to_string(hardware_queues).c_str(), 1);
  return true;
}();

}  // namespace

void check(cudaError_t status, std::source_location where) {
  if (status == cudaSuccess) return;
  throw DeviceError(std::string("CUDA: ") + cudaGetErrorName(status) + ": " + cudaGetErrorString(status) + " [" +
                    to_string(where) + "]");
}

void check(CUresult status, const char* call, std::source_location where) {
  if (status == CUDA_SUCCESS) return;
  static const auto name_of = reinterpret_cast<CUresult (*)(CUresult, const char**)>(driver_function("cuGetErrorString", 6000));
  const char* text = nullptr;
  if (name_of(status, &text) != CUDA_SUCCESS || !text) text = "unknown error";
  throw DeviceError(std::string("CUDA: ") + call + ": " + text + " (" + std::to_string(static_cast<int>(status)) + ") [" +
                    to_string(where) + "]");
}

void* driver_function(const char* name, int version, std::source_location where) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  check(cudaGetDriverEntryPointByVersion(name, &function, static_cast<unsigned>(version), cudaEnableDefault, &found), where);
  if (found != cudaDriverEntryPointSuccess || !function) {
    throw DeviceError(std::string("CUDA: the driver has no ") + name + " of version " + std::to_string(version / 1000) + "." +
                      std::to_string(version % 1000 / 10) + ": it is too old [" + to_string(where) + "]");
  }
  return function;
}

int cuda_device_count(std::string* why) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    if (why) *why = std::string("no usable NVIDIA driver (") + cudaGetErrorString(status) + ")";
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  if (count == 0 && why) *why = "the driver lists no GPU (is CUDA_VISIBLE_DEVICES empty?)";
  return count;
}

Device cuda_device_on_bus(const std::string& bus_id) {
  int index = 0;
  check(cudaDeviceGetByPCIBusId(&index, bus_id.c_str()));
  return {DeviceKind::cuda, index};
}

namespace detail {
namespace {

class CudaEvent final : public EventImpl {
 public:
  explicit CudaEvent(Device device, EventTiming timing) : is_timed(timing == EventTiming::on) {
    cuda_make_current(device);
    check(cudaEventCreateWithFlags(&event, is_timed ? cudaEventDefault : cudaEventDisableTiming));
  }
  ~CudaEvent() override { static_cast<void>(cudaEventDestroy(event)); }

  bool is_complete() const override {
    const cudaError_t status = cudaEventQuery(event);
    if (status == cudaErrorNotReady) return false;
    check(status);
    return true;
  }
  void synchronize() const override { check(cudaEventSynchronize(event)); }
  float elapsed_ms_until(const EventImpl& end) const override {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, event, static_cast<const CudaEvent&>(end).event));
    return ms;
  }

  const bool is_timed;
  cudaEvent_t event = nullptr;
};

// A driver function, which plait does not link so that it also starts without a driver.
using BatchMemOp = CUresult (*)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);

BatchMemOp batch_mem_op() {
  static const auto found = reinterpret_cast<BatchMemOp>(driver_function("cuStreamBatchMemOp", 12000));
  return found;
}

CUstreamBatchMemOpParams as_parameters(const CounterOperation& operation) {
  const auto address = reinterpret_cast<CUdeviceptr>(operation.counter);
  CUstreamBatchMemOpParams parameters{};
  if (operation.kind == CounterOperation::Kind::write) {
    parameters.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
                             .address = address,
                             .value = operation.value,
                             .flags = CU_STREAM_WRITE_VALUE_DEFAULT,
                             .alias = 0};
  } else {
    parameters.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                            .address = address,
                            .value = operation.value,
                            .flags = CU_STREAM_WAIT_VALUE_GEQ,
                            .alias = 0};
  }
  return parameters;
}

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

// Allows this thread, while it captures other streams, to query events of streams that are not captured.
class Uncaptured {
 public:
  Uncaptured() { check(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~Uncaptured() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  Uncaptured(const Uncaptured&) = delete;
  Uncaptured& operator=(const Uncaptured&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Keeps the caller fewer than most_enqueued calls ahead of a stream, by events at intervals of calls: the oldest has completed
// before another is recorded.
class Backlog {
 public:
  explicit Backlog(Device device) {
    for (std::optional<CudaEvent>& mark : marks_) mark.emplace(device, EventTiming::off);
  }
  // Called before each call.
  void make_room(cudaStream_t stream) {
    if (++calls_ % calls_per_mark != 0 || is_captured(stream)) return;
    const Uncaptured here;
    std::lock_guard lock(mutex_);
    const CudaEvent& oldest = *marks_[next_++ % marks_.size()];
    while (!oldest.is_complete()) std::this_thread::sleep_for(std::chrono::microseconds(20));
    check(cudaEventRecord(oldest.event, stream));
  }

 private:
  static constexpr int calls_per_mark = 64;
  std::atomic<unsigned> calls_{0};
  std::mutex mutex_;
  std::array<std::optional<CudaEvent>, most_enqueued / calls_per_mark - 1> marks_;
  std::size_t next_ = 0;
};

// A host task enqueued on a CUDA stream; owns itself until it has run.
struct HostTask {
  std::function<void()> run;
  std::shared_ptr<std::exception_ptr> failure;
  std::shared_ptr<std::mutex> mutex;
};

void run_host_task(void* raw) {
  std::unique_ptr<HostTask> task(static_cast<HostTask*>(raw));
  {
    std::lock_guard lock(*task->mutex);
    if (*task->failure) return;
  }
  try {
    task->run();
  } catch (...) {
    std::lock_guard lock(*task->mutex);
    if (!*task->failure) *task->failure = std::current_exception();
  }
}

class CudaStream final : public StreamImpl {
 public:
  CudaStream(Device device, StreamPriority priority, bool has_companion) : device_(device), backlog_(device) {
    cuda_make_current(device);
    int least = 0, greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority == StreamPriority::high ? greatest : least));
    if (has_companion) companion_ = std::make_unique<CudaStream>(device, StreamPriority::high, false);
  }
  ~CudaStream() override {
    static_cast<void>(cudaStreamSynchronize(stream_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }

  Device device() const override { return device_; }
  void record(EventImpl& event) override {
    const auto& recorded = static_cast<CudaEvent&>(event);
    backlog_.make_room(stream_);
    const bool is_node = recorded.is_timed && is_captured(stream_);  // else it is an edge of the graph
    check(cudaEventRecordWithFlags(recorded.event, stream_, is_node ? cudaEventRecordExternal : cudaEventRecordDefault));
  }
  void wait(const EventImpl& event) override {
    backlog_.make_room(stream_);
    check(cudaStreamWaitEvent(stream_, static_cast<const CudaEvent&>(event).event, 0));
  }
  StreamImpl& aside(const EventImpl& event) override {
    if (!companion_) return *this;
    companion_->wait(event);
    return *companion_;
  }
  StreamImpl* companion() const override { return companion_.get(); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    backlog_.make_room(stream_);
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
  }
  void zero(void* memory, std::size_t bytes) override {
    backlog_.make_room(stream_);
    check(cudaMemsetAsync(memory, 0, bytes, stream_));
  }
  void count(std::span<const CounterOperation> operations) override {
    if (device_.shared) return count_enqueued(operations);
    std::vector<CUstreamBatchMemOpParams> list;
    for (const CounterOperation& operation : operations) {
      backlog_.make_room(stream_);
      list.push_back(as_parameters(operation));
    }
    check(batch_mem_op()(stream_, static_cast<unsigned>(list.size()), list.data(), 0), "cuStreamBatchMemOp");
  }
  void enqueue_host(std::function<void()> task) override {
    backlog_.make_room(stream_);
    auto owned = std::make_unique<HostTask>(HostTask{std::move(task), failure_, failure_mutex_});
    check(cudaLaunchHostFunc(stream_, run_host_task, owned.get()));
    static_cast<void>(owned.release());
  }
  void synchronize() override {
    check(cudaStreamSynchronize(stream_));
    if (companion_) check(cudaStreamSynchronize(companion_->stream_));
    rethrow_failure();
  }
  void rethrow_failure() const override {
    std::lock_guard lock(*failure_mutex_);
    if (*failure_) std::rethrow_exception(*failure_);
  }
  void* native() override {
    backlog_.make_room(stream_);
    return stream_;
  }

 private:
  void count_enqueued(std::span<const CounterOperation> operations) {
    for (const CounterOperation& operation : operations) {
      if (operation.kind == CounterOperation::Kind::wait) {
        if (const auto written = enqueued_counters().await(operation.counter, operation.value)) wait(written->impl());
        continue;
      }
      backlog_.make_room(stream_);
      CUstreamBatchMemOpParams parameters = as_parameters(operation);  // the host may read it too
      check(batch_mem_op()(stream_, 1, &parameters, 0), "cuStreamBatchMemOp");
      const auto written = std::make_shared<Event>(device_);
      record(written->impl());
      enqueued_counters().write(operation.counter, operation.value, written);
    }
  }

  Device device_;
  cudaStream_t stream_ = nullptr;
  Backlog backlog_;
  std::unique_ptr<CudaStream> companion_;
  std::shared_ptr<std::exception_ptr> failure_ = std::make_shared<std::exception_ptr>();
  std::shared_ptr<std::mutex> failure_mutex_ = std::make_shared<std::mutex>();
};

}  // namespace

std::unique_ptr<StreamImpl> make_cuda_stream(Device device, StreamPriority priority, bool has_companion) {
  return std::make_unique<CudaStream>(device, priority, has_companion);
}
std::unique_ptr<EventImpl> make_cuda_event(Device device, EventTiming timing) {
  return std::make_unique<CudaEvent>(device, timing);
}

void* cuda_allocate(Device device, std::size_t bytes, MemoryKind kind) {
  cuda_make_current(device);
  void* memory = nullptr;
  const cudaError_t status =
      kind == MemoryKind::device ? cudaMalloc(&memory, bytes) : cudaHostAlloc(&memory, bytes, cudaHostAllocPortable);
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    const MemoryInfo info = cuda_memory_info(device);
    const auto shown = [](std::size_t n) { return format_bytes(static_cast<double>(n)); };
    throw OutOfMemoryError(to_string(device) + ": out of memory: cannot allocate " + shown(bytes) + " of " +
                           (kind == MemoryKind::device ? "device" : "pinned host") + " memory; " + shown(info.free_bytes) +
                           " of " + shown(info.total_bytes) + " of device memory are free");
  }
  check(status);
  return memory;
}

void cuda_free(Device device, void* memory, MemoryKind kind) noexcept {
  int current = 0;
  static_cast<void>(cudaGetDevice(&current));
  static_cast<void>(cudaSetDevice(device.index));
  static_cast<void>(kind == MemoryKind::device ? cudaFree(memory) : cudaFreeHost(memory));
  static_cast<void>(cudaSetDevice(current));
}

MemoryInfo cuda_memory_info(Device device) {
  cuda_make_current(device);
  MemoryInfo info;
  check(cudaMemGetInfo(&info.free_bytes, &info.total_bytes));
  return info;
}

std::size_t cuda_memory_size(Device device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device.index));
  return properties.totalGlobalMem;
}

std::string cuda_device_name(Device device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device.index));
  return properties.name;
}

void cuda_make_current(Device device) { check(cudaSetDevice(device.index)); }

}  // namespace detail
}  // namespace plait
