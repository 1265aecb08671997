// Device functions that wait for and set mailboxes' counters.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "comm/p2p/mover.h"

namespace plait::comm::p2p {

// Counters wrap around. Data written before the counter is visible after this.
__device__ inline void wait_for(const CounterValue& awaited) {
  std::uint32_t value;
  do {
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(awaited.counter) : "memory");
  } while (static_cast<std::int32_t>(value - awaited.value) < 0);
}

__device__ inline void set(const CounterValue& counter) {
  *const_cast<volatile std::uint32_t*>(counter.counter) = counter.value;
}

}  // namespace plait::comm::p2p
