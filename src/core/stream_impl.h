// The interface that a device implements to provide streams. Private to core: everything else uses core/stream.h.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "core/stream.h"

namespace plait::detail {

class EventImpl {
 public:
  virtual ~EventImpl() = default;
  virtual bool is_complete() const = 0;
  virtual void synchronize() const = 0;
  virtual float elapsed_ms_until(const EventImpl& end) const = 0;
};

class StreamImpl {
 public:
  virtual ~StreamImpl() = default;
  virtual Device device() const = 0;
  virtual void record(EventImpl& event) = 0;
  virtual void wait(const EventImpl& event) = 0;
  virtual StreamImpl& aside(const EventImpl& event) = 0;
  virtual StreamImpl* companion() const = 0;  // nullptr: none
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual void zero(void* memory, std::size_t bytes) = 0;
  virtual void count(std::span<const CounterOperation> operations) = 0;
  virtual void enqueue_host(std::function<void()> task) = 0;
  virtual void synchronize() = 0;
  virtual void rethrow_failure() const = 0;
  virtual void* native() = 0;
};

std::unique_ptr<StreamImpl> make_host_stream(Device device);
std::unique_ptr<EventImpl> make_host_event();

// Defined in cuda_device.cpp, or in no_cuda_device.cpp where plait is built without CUDA (those throw DeviceError).
std::unique_ptr<StreamImpl> make_cuda_stream(Device device, StreamPriority priority, bool has_companion);
std::unique_ptr<EventImpl> make_cuda_event(Device device, EventTiming timing);
void* cuda_allocate(Device device, std::size_t bytes, MemoryKind kind);
void cuda_free(Device device, void* memory, MemoryKind kind) noexcept;
MemoryInfo cuda_memory_info(Device device);
std::size_t cuda_memory_size(Device device);
std::string cuda_device_name(Device device);
void cuda_make_current(Device device);

}  // namespace plait::detail
