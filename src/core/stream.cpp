#include "core/stream.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <ctime>

#include "core/stream_impl.h"

namespace plait {
namespace {

// std::atomic's own wait works only between the threads of one process; these futexes are not FUTEX_PRIVATE.
void futex_wait(const std::uint32_t* counter, std::uint32_t expected) {
  // The limit only bounds the harm of a writer that died between its write and its wake.
  const timespec limit{0, 100'000'000};
  ::syscall(SYS_futex, counter, FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void futex_wake(const std::uint32_t* counter) { ::syscall(SYS_futex, counter, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace

std::uint32_t read_counter(const std::uint32_t* counter) {
  return std::atomic_ref<std::uint32_t>(*const_cast<std::uint32_t*>(counter)).load(std::memory_order_acquire);
}

void write_counter(std::uint32_t* counter, std::uint32_t value) {
  std::atomic_ref<std::uint32_t>(*counter).store(value, std::memory_order_release);
  futex_wake(counter);
}

void await_counter(const std::uint32_t* counter, std::uint32_t value) {
  for (;;) {
    const std::uint32_t now = read_counter(counter);
    if (reached(now, value)) return;
    futex_wait(counter, now);
  }
}

Event::Event(Device device, EventTiming timing)
    : impl_(device.is_cuda() ? detail::make_cuda_event(device, timing) : detail::make_host_event()) {}
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;
Event::~Event() = default;
bool Event::is_complete() const { return impl_->is_complete(); }
void Event::synchronize() const { impl_->synchronize(); }

float elapsed_ms(const Event& from, const Event& to) { return from.impl().elapsed_ms_until(to.impl()); }

Device StreamRef::device() const { return impl_->device(); }
void StreamRef::record(Event& event) const { impl_->record(event.impl()); }
void StreamRef::wait(const Event& event) const { impl_->wait(event.impl()); }
StreamRef StreamRef::aside(const Event& event) const { return StreamRef(impl_->aside(event.impl())); }
StreamRef StreamRef::companion() const {
  detail::StreamImpl* const found = impl_->companion();
  return found ? StreamRef(*found) : StreamRef();
}
void StreamRef::copy(void* to, const void* from, std::size_t bytes) const { impl_->copy(to, from, bytes); }
void StreamRef::zero(void* memory, std::size_t bytes) const { impl_->zero(memory, bytes); }
void StreamRef::write_value(std::uint32_t* counter, std::uint32_t value) const {
  const CounterOperation write{CounterOperation::Kind::write, counter, value};
  impl_->count({&write, 1});
}
void StreamRef::wait_value(const std::uint32_t* counter, std::uint32_t value) const {
  const CounterOperation wait{CounterOperation::Kind::wait, const_cast<std::uint32_t*>(counter), value};
  impl_->count({&wait, 1});
}
void StreamRef::count(std::span<const CounterOperation> operations) const {
  if (!operations.empty()) impl_->count(operations);
}
void StreamRef::enqueue_host(std::function<void()> task) const { impl_->enqueue_host(std::move(task)); }
void StreamRef::synchronize() const { impl_->synchronize(); }
void StreamRef::rethrow_failure() const { impl_->rethrow_failure(); }
void* StreamRef::native() const { return impl_->native(); }

Stream::Stream(Device device, StreamPriority priority, bool has_companion)
    : impl_(device.is_cuda() ? detail::make_cuda_stream(device, priority, has_companion) : detail::make_host_stream(device)) {}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
Stream::~Stream() = default;

}  // namespace plait
