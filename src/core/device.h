// Devices and their memory.
//
// A rank computes on one Device: a CUDA GPU, or the host, which also behaves as an asynchronous device (core/stream.h).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace plait {

enum class DeviceKind : std::uint8_t { host, cuda };

struct Device {
  DeviceKind kind = DeviceKind::host;
  int index = 0;  // CUDA ordinal; any number for the host, since all host devices share one memory
  bool shared =
      false;  // several ranks of this process have it (launch.ranks_per_device), which core/enqueued_counters.h is for
  bool is_cuda() const { return kind == DeviceKind::cuda; }
  // The same device, shared or not.
  friend bool operator==(const Device& a, const Device& b) { return a.kind == b.kind && a.index == b.index; }
  friend auto operator<=>(const Device& a, const Device& b) {
    return std::pair(a.kind, a.index) <=> std::pair(b.kind, b.index);
  }
};

std::string to_string(Device device);  // "cuda:0", "host:1"

// The number of GPUs usable by this process. If it is 0, `why` (if given) receives the reason: not built with CUDA, no driver,
// ...
int cuda_device_count(std::string* why = nullptr);

// The GPU at a PCI address ("0000:1b:00.0"), in this process's numbering. DeviceError if it sees none there.
Device cuda_device_on_bus(const std::string& bus_id);

// The name the vendor gives the device: "NVIDIA H200", or the CPU's model name.
std::string device_name(Device device);

// Makes `device` current for the calling thread. CUDA keeps that per thread, so every thread that enqueues work calls this
// once when it starts; for the host device it does nothing.
void make_current(Device device);

enum class MemoryKind : std::uint8_t {
  device,       // the device's own memory (host memory for a host device), 256-byte aligned, not cleared
  pinned_host,  // page-locked host memory that a copy engine can reach (plain host memory for a host device)
};

class DeviceMemory;

// Owns one allocation; movable. Freeing does not wait for work that still uses the memory: the owner synchronizes first.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  friend class DeviceMemory;
  DeviceMemory* owner_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  MemoryKind kind_ = MemoryKind::device;
};

// The allocator of one rank on one device, with counters that tests and reports read. Must outlive its Buffers.
// Not thread-safe: a rank's own thread allocates.
class DeviceMemory {
 public:
  // `limit`: bytes of MemoryKind::device that may be allocated, regardless of the device's size.
  explicit DeviceMemory(Device device, std::size_t limit = no_limit) : device_(device), limit_(limit) {}
  static constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  Device device() const { return device_; }
  Buffer allocate(std::size_t bytes, MemoryKind kind = MemoryKind::device);  // OutOfMemoryError if there is not enough
  std::int64_t allocations() const { return allocations_; }                  // calls of allocate so far
  std::size_t live_bytes() const { return live_bytes_; }                     // MemoryKind::device only
  std::size_t peak_bytes() const { return peak_bytes_; }

 private:
  friend class Buffer;
  void release(Buffer& buffer) noexcept;
  Device device_;
  std::size_t limit_;
  std::int64_t allocations_ = 0;
  std::size_t live_bytes_ = 0;
  std::size_t peak_bytes_ = 0;
};

struct MemoryInfo {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
};
MemoryInfo memory_info(Device device);   // from the driver (or /proc/meminfo); creates a context on a GPU
std::size_t memory_size(Device device);  // memory_info().total_bytes, without a context

// "00000000:1B:00.0" (NVML's form) and "0000:1B:00.0" (CUDA's) become "0000:1b:00.0", the kernel's form. nullopt if the text is
// not a PCI address.
std::optional<std::string> bus_id_from(std::string_view text);

// The kernel's name of this host, of at most 255 characters; "localhost" if it has none.
std::string host_name();

}  // namespace plait
