// Counters in memory that several threads or processes share, as host streams wait for and write them (StreamRef::write_value).
#pragma once

#include <cstdint>

namespace plait {

// Whether a counter that stands at `now` is at or past `value`, both on the circle of 32-bit numbers.
inline bool reached(std::uint32_t now, std::uint32_t value) { return static_cast<std::int32_t>(now - value) >= 0; }

std::uint32_t read_counter(const std::uint32_t* counter);  // acquires what was released with the value

// Releases what this thread wrote before and wakes those who wait, in any process that has the memory mapped.
void write_counter(std::uint32_t* counter, std::uint32_t value);

// Blocks until the counter has reached `value`.
void await_counter(const std::uint32_t* counter, std::uint32_t value);

}  // namespace plait
