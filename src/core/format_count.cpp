#include "core/format_count.h"

#include <spdlog/fmt/fmt.h>

#include <array>
#include <cmath>

namespace plait {

std::string format_count(double value) {
  constexpr std::array<const char*, 5> suffixes{"", "k", "M", "G", "T"};
  std::size_t i = 0;
  // 999.5 would appear as 1000 of the smaller unit.
  for (; std::abs(value) >= 999.5 && i + 1 < suffixes.size(); ++i) value /= 1000;
  if (i == 0) return fmt::format("{:.3g}", value);
  const int decimals = std::abs(value) < 9.995 ? 2 : std::abs(value) < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, decimals, suffixes[i]);
}

}  // namespace plait
