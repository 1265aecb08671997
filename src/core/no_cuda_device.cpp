// The CUDA device of a build without CUDA: counts none and refuses the rest.
#include "core/error.h"
#include "core/stream_impl.h"

namespace plait {

int cuda_device_count(std::string* why) {
  if (why) *why = "this plait was built without CUDA (PLAIT_CUDA=OFF, or no nvcc was found)";
  return 0;
}

Device cuda_device_on_bus(const std::string&) { throw DeviceError("this plait was built without CUDA"); }

namespace detail {
namespace {
[[noreturn]] void refuse() { throw DeviceError("this plait was built without CUDA"); }
}  // namespace

std::unique_ptr<StreamImpl> make_cuda_stream(Device, StreamPriority, bool) { refuse(); }
std::unique_ptr<EventImpl> make_cuda_event(Device, EventTiming) { refuse(); }
void* cuda_allocate(Device, std::size_t, MemoryKind) { refuse(); }
void cuda_free(Device, void*, MemoryKind) noexcept {}
MemoryInfo cuda_memory_info(Device) { refuse(); }
std::size_t cuda_memory_size(Device) { refuse(); }
std::string cuda_device_name(Device) { refuse(); }
void cuda_make_current(Device) { refuse(); }

}  // namespace detail
}  // namespace plait
