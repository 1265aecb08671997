// Counters in memory shared by threads or processes. Host streams write them and wait for them (StreamRef::write_value).
#pragma once

#include <cstdint>

namespace plait {

// True if a counter that reads `now` has reached `value`. Both are 32-bit numbers that wrap around.
inline bool reached(std::uint32_t now, std::uint32_t value) { return static_cast<std::int32_t>(now - value) >= 0; }

std::uint32_t read_counter(const std::uint32_t* counter);  // acquires everything released with the value

// Releases this thread's earlier writes, and wakes all waiters in every process that has the memory mapped.
void write_counter(std::uint32_t* counter, std::uint32_t value);

// Blocks until the counter has reached `value`.
void await_counter(const std::uint32_t* counter, std::uint32_t value);

}  // namespace plait
