#include <cupti.h>
#include <cxxabi.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>

#include "core/cuda_check.h"
#include "core/error.h"
#include "core/shared_library.h"
#include "runtime/device_activities.h"

namespace plait::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t buffer_bytes = std::size_t{8} << 20;
constexpr std::size_t most_records = 4'000'000;  // for a device between two calls of synchronize_take
constexpr std::size_t longest_name = 160;
constexpr CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                        CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET};

// The library's functions, as its header declares them.
struct Cupti {
  decltype(&cuptiGetVersion) version = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;
  decltype(&cuptiGetTimestamp) timestamp = nullptr;
  decltype(&cuptiGetStreamIdEx) stream_id = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;

  void check(CUptiResult status, const char* call) const {
    if (status == CUPTI_SUCCESS) return;
    const char* text = nullptr;
    static_cast<void>(result_string(status, &text));
    throw DeviceError(std::string("CUPTI: ") + call + ": " + (text ? text : "unknown error"));
  }
};

Cupti open_cupti() {
  const SharedLibrary library("CUPTI", {"libcupti.so." + std::to_string(CUDART_VERSION / 1000), PLAIT_CUPTI_LIBRARY});
  Cupti cupti;
  library.find(cupti.version, "cuptiGetVersion");
  library.find(cupti.result_string, "cuptiGetResultString");
  library.find(cupti.timestamp, "cuptiGetTimestamp");
  library.find(cupti.stream_id, "cuptiGetStreamIdEx");
  library.find(cupti.register_callbacks, "cuptiActivityRegisterCallbacks");
  library.find(cupti.enable, "cuptiActivityEnable");
  library.find(cupti.disable, "cuptiActivityDisable");
  library.find(cupti.flush, "cuptiActivityFlushAll");
  library.find(cupti.next_record, "cuptiActivityGetNextRecord");
  std::uint32_t version = 0;
  cupti.check(cupti.version(&version), "cuptiGetVersion");
  if (version < CUPTI_API_VERSION) throw DeviceError("CUPTI is older than the one that plait was built with");
  return cupti;
}

struct Record {
  std::string name;
  std::uint32_t stream = 0;
  std::uint64_t begin = 0, end = 0;  // on CUPTI's clock, nanoseconds
};

std::string kernel_name(const char* mangled) {
  if (!mangled) return "kernel";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> readable(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                             &std::free);
  return std::string(status == 0 && readable ? readable.get() : mangled).substr(0, longest_name);
}

// The one collector of the process. CUPTI's callbacks carry nothing of their caller's, so it has to be found without that.
class Collector {
 public:
  Collector() : cupti_(open_cupti()) {
    cupti_.check(cupti_.register_callbacks(&Collector::give_buffer, &Collector::take_buffer), "cuptiActivityRegisterCallbacks");
  }

  const Cupti& cupti() const { return cupti_; }

  void start() {
    std::lock_guard lock(users_mutex_);
    if (users_++ > 0) return;
    try {
      for (const CUpti_ActivityKind kind : kinds) cupti_.check(cupti_.enable(kind), "cuptiActivityEnable");
    } catch (...) {
      --users_;
      for (const CUpti_ActivityKind kind : kinds) static_cast<void>(cupti_.disable(kind));
      throw;
    }
  }
  void stop() noexcept {
    std::lock_guard lock(users_mutex_);
    if (--users_ > 0) return;
    for (const CUpti_ActivityKind kind : kinds) static_cast<void>(cupti_.disable(kind));
    static_cast<void>(cupti_.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    std::lock_guard records_lock(records_mutex_);
    records_.clear();
  }

  std::vector<Record> synchronize_take(int device) {
    cupti_.check(cupti_.flush(0), "cuptiActivityFlushAll");
    std::lock_guard lock(records_mutex_);
    return std::move(records_[static_cast<std::uint32_t>(device)]);
  }

  static Collector& of_process() {
    // The constructor throws if there is no CUPTI, and is then tried again by the next call. Never destroyed: CUPTI calls as
    // long as the process lives.
    static Collector* const collector = new Collector;
    return *collector;
  }

 private:
  static void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(64, buffer_bytes));
    *size = *buffer ? buffer_bytes : 0;
    *records = 0;  // no limit: as many as fit
  }
  static void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
    of_process().read(buffer, valid);
    std::free(buffer);
  }

  void read(std::uint8_t* buffer, std::size_t valid) {
    std::lock_guard lock(records_mutex_);
    CUpti_Activity* record = nullptr;
    while (cupti_.next_record(buffer, valid, &record) == CUPTI_SUCCESS) {
      switch (record->kind) {
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
          const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
          add(kernel.deviceId, {kernel_name(kernel.name), kernel.streamId, kernel.start, kernel.end});
          break;
        }
        case CUPTI_ACTIVITY_KIND_MEMCPY: {
          const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
          add(copy.deviceId, {"copy " + std::to_string(copy.bytes) + " bytes", copy.streamId, copy.start, copy.end});
          break;
        }
        case CUPTI_ACTIVITY_KIND_MEMCPY2: {
          const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpyPtoP4*>(record);
          add(copy.deviceId, {"copy to a peer " + std::to_string(copy.bytes) + " bytes", copy.streamId, copy.start, copy.end});
          break;
        }
        case CUPTI_ACTIVITY_KIND_MEMSET: {
          const auto& set = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
          add(set.deviceId, {"set " + std::to_string(set.bytes) + " bytes", set.streamId, set.start, set.end});
          break;
        }
        default: break;
      }
    }
  }
  void add(std::uint32_t device, Record record) {
    std::vector<Record>& list = records_[device];
    if (list.size() < most_records) list.push_back(std::move(record));
  }

  const Cupti cupti_;
  std::mutex users_mutex_, records_mutex_;
  int users_ = 0;
  std::map<std::uint32_t, std::vector<Record>> records_;  // by device
};

}  // namespace

struct DeviceActivities::Source {
  Collector& collector = Collector::of_process();
  Device device;
  std::map<std::uint32_t, int> streams;  // by CUPTI's number
  Clock::time_point epoch;               // epoch of CUPTI's clock

  Source(Device d, const std::vector<StreamRef>& list) : device(d) {
    const Cupti& cupti = collector.cupti();
    CUcontext context = nullptr;
    const auto current = reinterpret_cast<CUresult (*)(CUcontext*)>(driver_function("cuCtxGetCurrent", 4000));
    check(current(&context), "cuCtxGetCurrent");
    for (std::size_t s = 0; s < list.size(); ++s) {
      std::uint32_t id = 0;
      cupti.check(cupti.stream_id(context, static_cast<CUstream>(list[s].native()), 0, &id), "cuptiGetStreamIdEx");
      streams[id] = static_cast<int>(s);
    }
    collector.start();
    // The best of several, as the host may be interrupted.
    auto narrowest = Clock::duration::max();
    for (int i = 0; i < 16; ++i) {
      std::uint64_t now = 0;
      const auto before = Clock::now();
      const CUptiResult status = cupti.timestamp(&now);
      const auto width = Clock::now() - before;
      if (status != CUPTI_SUCCESS || width >= narrowest) continue;
      narrowest = width;
      epoch = before + width / 2 - std::chrono::nanoseconds(now);
    }
  }
  ~Source() { collector.stop(); }
};

DeviceActivities::DeviceActivities(Device device, const std::vector<StreamRef>& streams) {
  if (!device.is_cuda()) {
    why_missing_ = "the ranks are not on GPUs";
    return;
  }
  try {
    source_ = std::make_unique<Source>(device, streams);
  } catch (const DeviceError& error) {
    why_missing_ = error.what();
  }
}

DeviceActivities::~DeviceActivities() = default;

std::vector<parallel::DeviceActivity> DeviceActivities::synchronize_take() {
  std::vector<parallel::DeviceActivity> activities;
  if (!source_) return activities;
  for (Record& record : source_->collector.synchronize_take(source_->device.index)) {
    const auto stream = source_->streams.find(record.stream);
    activities.push_back({std::move(record.name), stream == source_->streams.end() ? -1 : stream->second,
                          source_->epoch + std::chrono::nanoseconds(record.begin),
                          source_->epoch + std::chrono::nanoseconds(record.end)});
  }
  return activities;
}

ProfilerRange::ProfilerRange(const char* name) { static_cast<void>(nvtxRangePushA(name)); }
ProfilerRange::~ProfilerRange() { static_cast<void>(nvtxRangePop()); }

}  // namespace plait::runtime
