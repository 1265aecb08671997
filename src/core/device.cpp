#include "core/device.h"

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <new>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "core/stream_impl.h"

namespace plait {
namespace {
constexpr std::size_t alignment = 256;
}

std::string to_string(Device device) { return (device.is_cuda() ? "cuda:" : "host:") + std::to_string(device.index); }

std::string device_name(Device device) {
  if (device.is_cuda()) return detail::cuda_device_name(device);
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name")) {
      const auto colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "CPU";
}

void make_current(Device device) {
  if (device.is_cuda()) detail::cuda_make_current(device);
}

Buffer::Buffer(Buffer&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      kind_(other.kind_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    if (owner_) owner_->release(*this);
    owner_ = std::exchange(other.owner_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    kind_ = other.kind_;
  }
  return *this;
}

Buffer::~Buffer() {
  if (owner_) owner_->release(*this);
}

namespace {
std::string shown_bytes(std::size_t bytes) { return format_bytes(static_cast<double>(bytes)); }
}  // namespace

Buffer DeviceMemory::allocate(std::size_t bytes, MemoryKind kind) {
  Buffer buffer;
  if (bytes > std::numeric_limits<std::size_t>::max() - alignment) {
    throw OutOfMemoryError(to_string(device_) + ": out of memory: cannot allocate " + shown_bytes(bytes));
  }
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  if (kind == MemoryKind::device && rounded > limit_ - std::min(limit_, live_bytes_)) {
    throw OutOfMemoryError(fmt::format("{}: out of memory: cannot allocate {}; {} of the {} that this rank may have are in use",
                                       to_string(device_), shown_bytes(rounded), shown_bytes(live_bytes_),
                                       shown_bytes(limit_)));
  }
  if (device_.is_cuda()) {
    buffer.data_ = detail::cuda_allocate(device_, rounded, kind);
  } else {
    buffer.data_ = std::aligned_alloc(alignment, rounded ? rounded : alignment);
    if (!buffer.data_) throw OutOfMemoryError(to_string(device_) + ": out of memory: cannot allocate " + shown_bytes(rounded));
  }
  buffer.owner_ = this;
  buffer.bytes_ = rounded;
  buffer.kind_ = kind;
  ++allocations_;
  if (kind == MemoryKind::device) {
    live_bytes_ += rounded;
    if (live_bytes_ > peak_bytes_) peak_bytes_ = live_bytes_;
  }
  return buffer;
}

void DeviceMemory::release(Buffer& buffer) noexcept {
  if (device_.is_cuda()) {
    detail::cuda_free(device_, buffer.data_, buffer.kind_);
  } else {
    std::free(buffer.data_);
  }
  if (buffer.kind_ == MemoryKind::device) live_bytes_ -= buffer.bytes_;
  buffer.owner_ = nullptr;
  buffer.data_ = nullptr;
}

std::size_t memory_size(Device device) {
  return device.is_cuda() ? detail::cuda_memory_size(device) : memory_info(device).total_bytes;
}

MemoryInfo memory_info(Device device) {
  if (device.is_cuda()) return detail::cuda_memory_info(device);
  MemoryInfo info;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string key, unit; meminfo >> key;) {
    std::size_t kib = 0;
    meminfo >> kib;
    std::getline(meminfo, unit);
    if (key == "MemTotal:") info.total_bytes = kib * 1024;
    if (key == "MemAvailable:") info.free_bytes = kib * 1024;
  }
  return info;
}

namespace {

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

std::optional<std::string> bus_id_from(std::string_view text) {
  std::string lower(text.substr(0, 32));
  for (char& c : lower) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  constexpr std::string_view tail = ":1b:00.0";
  if (text.size() > 8 + tail.size() || lower.size() < 4 + tail.size()) return std::nullopt;
  std::string domain = lower.substr(0, lower.size() - tail.size());
  const std::string rest = lower.substr(domain.size());
  const std::string digits = domain + rest.substr(1, 2) + rest.substr(4, 2) + rest.substr(7, 1);
  if (rest[0] != ':' || rest[3] != ':' || rest[6] != '.' || !is_hex(digits)) return std::nullopt;
  // Domains have 16 bits, except on some virtual bridges.
  domain.erase(0, std::min(domain.find_first_not_of('0'), domain.size() - 4));
  return domain + rest;
}

std::string host_name() {
  std::array<char, 256> name{};  // a truncated name may lack the final zero
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace plait
