#include "core/format.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/units.h"

namespace plait {

std::string format_gib(double bytes, int decimals) { return fmt::format("{:.{}f} GiB", bytes / gib, decimals); }

std::string format_bytes(double bytes, int gib_decimals) {
  if (bytes < kib) return fmt::format("{:.0f} bytes", bytes);
  if (bytes < mib) return fmt::format("{:.1f} KiB", bytes / kib);
  return bytes < gib ? fmt::format("{:.1f} MiB", bytes / mib) : format_gib(bytes, gib_decimals);
}

std::string format_count(double value) {
  constexpr std::array<const char*, 5> suffixes{"", "k", "M", "G", "T"};
  std::size_t i = 0;
  // 999.5 would appear as 1000 of the smaller unit.
  for (; std::abs(value) >= 999.5 && i + 1 < suffixes.size(); ++i) value /= 1000;
  if (i == 0) return fmt::format("{:.3g}", value);
  const int decimals = std::abs(value) < 9.995 ? 2 : std::abs(value) < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, decimals, suffixes[i]);
}

std::string format_duration(std::chrono::seconds duration) {
  const auto seconds = std::max<std::int64_t>(duration.count(), 0);
  const auto minutes = seconds / 60, hours = minutes / 60, days = hours / 24;
  if (days > 0) return fmt::format("{}d {:02}:{:02}", days, hours % 24, minutes % 60);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes % 60, seconds % 60);
  return fmt::format("{}:{:02}", minutes, seconds % 60);
}

}  // namespace plait
