// Message contents that reveal errors: random bytes with a period that no message, slot or chunk has, so that stale, shifted,
// torn, doubled or foreign data differs from the expected bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/device.h"
#include "core/stream.h"
#include "core/view.h"

namespace plait::bench {

struct WrongByte {
  std::size_t at = 0;
  std::byte is{}, expected{};
};

class Pattern {
 public:
  // Repeats `block` endlessly.
  explicit Pattern(std::vector<std::byte> block);
  static Pattern random(std::uint64_t seed);

  std::size_t period() const { return block_.size(); }
  // Writes bytes [first, first + to.size()).
  void write(std::span<std::byte> to, std::uint64_t first) const;
  std::optional<WrongByte> find_wrong(std::span<const std::byte> bytes, std::uint64_t first) const;
  // Counts elements of `element_bytes` that have a wrong byte. `bytes` begins with a whole element.
  std::int64_t count_wrong(std::span<const std::byte> bytes, std::uint64_t first, std::size_t element_bytes) const;

 private:
  std::vector<std::byte> block_;
};

// Brings patterns to a device and back, through pinned memory.
class PatternTraffic {
 public:
  explicit PatternTraffic(DeviceMemory& memory);
  // All of these block the caller until the work on `stream` is done.
  void synchronize_fill(StreamRef stream, const Pattern& pattern, View data, std::uint64_t first);
  std::optional<WrongByte> synchronize_find_wrong(StreamRef stream, const Pattern& pattern, View data, std::uint64_t first);
  std::int64_t synchronize_count_wrong(StreamRef stream, const Pattern& pattern, View data, std::uint64_t first);

 private:
  template <typename Look>
  void synchronize_download(StreamRef stream, View data, Look look);
  Buffer staging_;
};

}  // namespace plait::bench
