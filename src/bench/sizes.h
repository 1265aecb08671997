// Parses, selects and prints message sizes. 1 KB is 1,024 bytes and 1 MB is 1,024 KB, as in nccl-tests; rates are in units of
// 10^9 bytes per second.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace plait::bench {

constexpr std::size_t kilo = 1024, mega = kilo * kilo;

// "512", "4K", "16 MB", "1G", "256MiB". ConfigError naming `option` otherwise, and for 0.
std::size_t parse_bytes(const std::string& text, const std::string& option);

std::string format_size(std::size_t bytes);  // "1 KB", "256 MB", "1000 B": exact

// The sizes that a benchmark should measure; empty texts mean the default.
struct SizeOptions {
  std::string min = {}, max = {};
  std::vector<std::string> sizes = {};  // exactly these, instead of min to max
};

// The sizes asked for, ascending and without repeats, or min, 4 min, 16 min, ... up to max. The default is 1 KB to 1 GB, on
// CPUs 1 KB to 16 MB. ConfigError if min is above max.
std::vector<std::size_t> message_sizes(const SizeOptions& options, bool gpus);

// Drops the sizes above `most` and returns how many it dropped.
std::size_t bound_sizes(std::vector<std::size_t>& sizes, std::size_t most);

// The number of messages of a size to time at once: enough for a stable rate, few enough to be enqueued while a stream is held.
// As many as fit `budget` bytes, but at least 4 and at most 64.
int messages_for(std::size_t bytes, std::size_t budget);
constexpr std::size_t gpu_budget = std::size_t{4} << 30, cpu_budget = std::size_t{64} << 20;

constexpr double usable_memory = 0.7;  // the part of a device's free memory that a benchmark's buffers may take

}  // namespace plait::bench
