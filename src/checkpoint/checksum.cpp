#include "checkpoint/checksum.h"

#include <spdlog/fmt/fmt.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <numeric>
#include <system_error>
#include <thread>

namespace plait::checkpoint {

std::uint64_t xxh3(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::uint64_t xxh3(const File& file, std::uint64_t offset, std::uint64_t bytes) {
  constexpr std::uint64_t piece = std::uint64_t{1} << 20;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  if (!state) throw std::bad_alloc();
  XXH3_64bits_reset(state.get());
  std::vector<char> buffer(std::min(piece, bytes));
  for (std::uint64_t done = 0; done < bytes;) {
    const std::uint64_t count = std::min(piece, bytes - done);
    file.read_at(offset + done, buffer.data(), count);
    XXH3_64bits_update(state.get(), buffer.data(), count);
    done += count;
  }
  return XXH3_64bits_digest(state.get());
}

std::vector<std::uint64_t> xxh3(const std::vector<FileRange>& ranges) {
  // The largest first, so that the last to finish is small.
  std::vector<std::size_t> order(ranges.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return ranges[a].bytes > ranges[b].bytes; });
  std::vector<std::uint64_t> hashes(ranges.size());
  std::vector<std::exception_ptr> failures(ranges.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t n = next++; n < order.size(); n = next++) {
      const FileRange& range = ranges[order[n]];
      try {
        hashes[order[n]] = xxh3(*range.file, range.offset, range.bytes);
      } catch (...) {
        failures[order[n]] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    const std::size_t threads = std::min<std::size_t>(std::thread::hardware_concurrency(), ranges.size());
    try {
      while (helpers.size() + 1 < threads) helpers.emplace_back(work);
    } catch (const std::system_error&) {
      // Without that thread it only takes longer.
    }
    work();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return hashes;
}

std::string to_hex(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace plait::checkpoint
