// Memory that two threads of one process share: each end holds a share, and the last one frees it.
#include "comm/p2p/region_kinds.h"
#include "core/error.h"
#include "core/stream.h"

namespace plait::comm::p2p {
namespace {

// Freed by the last thread, which may be any; nobody else uses its allocator.
class SharedMemory {
 public:
  SharedMemory(Device device, std::size_t bytes) : memory_(device), buffer_(memory_.allocate(bytes)), bytes_(bytes) {
    const Stream stream(device);
    stream.ref().zero(buffer_.data(), bytes);
    stream.ref().synchronize();
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(buffer_.data()); }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return memory_.device(); }

 private:
  DeviceMemory memory_;
  Buffer buffer_;
  std::size_t bytes_;
};

class ThreadMemory final : public Region {
 public:
  explicit ThreadMemory(std::shared_ptr<SharedMemory> memory) : memory_(std::move(memory)) {
    data_ = memory_->data();
    bytes_ = memory_->bytes();
  }
  void offer(const std::string& name, HandleExchange& exchange) const override { exchange.give_object(name, memory_); }

 private:
  std::shared_ptr<SharedMemory> memory_;
};

}  // namespace

std::unique_ptr<Region> make_thread_memory(const RegionSpec& spec) {
  if (spec.used_by.is_cuda()) enable_peer_access(spec.used_by, spec.memory_on);
  auto memory = std::make_shared<SharedMemory>(spec.memory_on, spec.bytes);
  make_current(spec.used_by);  // allocating made the memory's device current
  return std::make_unique<ThreadMemory>(std::move(memory));
}

std::unique_ptr<Region> import_thread_memory(const RegionSpec& spec, HandleExchange& exchange) {
  auto memory = std::static_pointer_cast<SharedMemory>(exchange.take_object(spec.name));
  if (memory->bytes() != spec.bytes) {
    throw CommError("region '" + spec.name + "': the peer made it with " + std::to_string(memory->bytes()) +
                    " bytes instead of " + std::to_string(spec.bytes));
  }
  if (spec.used_by.is_cuda()) enable_peer_access(spec.used_by, memory->device());
  return std::make_unique<ThreadMemory>(std::move(memory));
}

}  // namespace plait::comm::p2p
