#include "core/counter.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <ctime>

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

}  // namespace plait
