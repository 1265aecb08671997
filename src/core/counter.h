// Counters in memory that several threads or processes share: what host streams write and wait for (StreamRef::write_value).
#pragma once

#include <cstdint>

namespace plait {

// Whether a counter that reads `now` has reached `value`. Both are 32-bit numbers that wrap around.
inline bool reached(std::uint32_t now, std::uint32_t value) { return static_cast<std::int32_t>(now - value) >= 0; }

std::uint32_t read_counter(const std::uint32_t* counter);  // acquires what was released with the value

// Releases what this thread wrote before, and wakes all waiters in every process that has the memory mapped.
void write_counter(std::uint32_t* counter, std::uint32_t value);

// Blocks until the counter has reached `value`.
void await_counter(const std::uint32_t* counter, std::uint32_t value);

}  // namespace plait
