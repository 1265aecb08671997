#include "bench/pattern.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/philox.h"

namespace plait::bench {
namespace {

constexpr std::size_t random_period = 1'048'583;  // a prime
constexpr std::size_t staging_bytes = std::size_t{8} << 20;

}  // namespace

Pattern::Pattern(std::vector<std::byte> block) : block_(std::move(block)) {
  require(!block_.empty(), "a pattern needs a block");
}

Pattern Pattern::random(std::uint64_t seed) {
  std::vector<std::byte> block(random_period);
  const Random source(seed, "pattern");
  for (std::size_t at = 0; at < block.size(); at += 8) {
    const std::uint64_t word = source.bits(at / 8);
    std::memcpy(block.data() + at, &word, std::min<std::size_t>(8, block.size() - at));
  }
  return Pattern(std::move(block));
}

void Pattern::write(std::span<std::byte> to, std::uint64_t first) const {
  std::size_t place = first % period();
  for (std::size_t at = 0; at < to.size(); place = 0) {
    const std::size_t count = std::min(to.size() - at, period() - place);
    std::memcpy(to.data() + at, block_.data() + place, count);
    at += count;
  }
}

std::optional<WrongByte> Pattern::find_wrong(std::span<const std::byte> bytes, std::uint64_t first) const {
  std::size_t place = first % period();
  for (std::size_t at = 0; at < bytes.size(); place = 0) {
    const std::size_t count = std::min(bytes.size() - at, period() - place);
    if (std::memcmp(bytes.data() + at, block_.data() + place, count) != 0) {
      const auto [is, expected] = std::mismatch(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end(),
                                                block_.begin() + static_cast<std::ptrdiff_t>(place));
      return WrongByte{static_cast<std::size_t>(is - bytes.begin()), *is, *expected};
    }
    at += count;
  }
  return std::nullopt;
}

std::int64_t Pattern::count_wrong(std::span<const std::byte> bytes, std::uint64_t first, std::size_t element_bytes) const {
  std::int64_t wrong = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto next = find_wrong(bytes.subspan(at), first + at);
    if (!next) break;
    ++wrong;
    at = (at + next->at) / element_bytes * element_bytes + element_bytes;
  }
  return wrong;
}

PatternTraffic::PatternTraffic(DeviceMemory& memory) : staging_(memory.allocate(staging_bytes, MemoryKind::pinned_host)) {}

void PatternTraffic::synchronize_fill(StreamRef stream, const Pattern& pattern, View data, std::uint64_t first) {
  // One piece of whole periods serves every part of the data that starts at the same position of the pattern.
  const std::size_t piece = staging_bytes / pattern.period() * pattern.period();
  require(piece > 0, "a pattern's period is longer than the staging memory");
  auto* host = static_cast<std::byte*>(staging_.data());
  pattern.write({host, std::min(piece, data.bytes())}, first);
  for (std::size_t at = 0; at < data.bytes(); at += piece) {
    stream.copy(static_cast<std::byte*>(data.data) + at, host, std::min(piece, data.bytes() - at));
  }
  stream.synchronize();
}

template <typename Look>
void PatternTraffic::synchronize_download(StreamRef stream, View data, Look look) {
  auto* host = static_cast<std::byte*>(staging_.data());
  for (std::size_t at = 0; at < data.bytes(); at += staging_bytes) {
    const std::size_t count = std::min(staging_bytes, data.bytes() - at);
    stream.copy(host, static_cast<const std::byte*>(data.data) + at, count);
    stream.synchronize();
    if (!look(std::span<const std::byte>(host, count), at)) return;
  }
}

std::optional<WrongByte> PatternTraffic::synchronize_find_wrong(StreamRef stream, const Pattern& pattern, View data,
                                                                std::uint64_t first) {
  std::optional<WrongByte> wrong;
  synchronize_download(stream, data, [&](std::span<const std::byte> bytes, std::size_t at) {
    wrong = pattern.find_wrong(bytes, first + at);
    if (wrong) wrong->at += at;
    return !wrong;
  });
  return wrong;
}

std::int64_t PatternTraffic::synchronize_count_wrong(StreamRef stream, const Pattern& pattern, View data, std::uint64_t first) {
  std::int64_t wrong = 0;
  synchronize_download(stream, data, [&](std::span<const std::byte> bytes, std::size_t at) {
    wrong += pattern.count_wrong(bytes, first + at, size_of(data.dtype));
    return true;
  });
  return wrong;
}

}  // namespace plait::bench
