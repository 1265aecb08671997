#include "core/format_time.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdint>

namespace plait {

std::string format_duration(std::chrono::seconds duration) {
  const auto seconds = std::max<std::int64_t>(duration.count(), 0);
  const auto minutes = seconds / 60, hours = minutes / 60, days = hours / 24;
  if (days > 0) return fmt::format("{}d {:02}:{:02}", days, hours % 24, minutes % 60);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes % 60, seconds % 60);
  return fmt::format("{}:{:02}", minutes, seconds % 60);
}

}  // namespace plait
