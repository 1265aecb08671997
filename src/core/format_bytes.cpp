#include "core/format_bytes.h"

#include <spdlog/fmt/fmt.h>

#include "core/units.h"

namespace plait {

std::string format_gib(double bytes, int decimals) { return fmt::format("{:.{}f} GiB", bytes / gib, decimals); }

std::string format_bytes(double bytes, int gib_decimals) {
  if (bytes < kib) return fmt::format("{:.0f} bytes", bytes);
  if (bytes < mib) return fmt::format("{:.1f} KiB", bytes / kib);
  return bytes < gib ? fmt::format("{:.1f} MiB", bytes / mib) : format_gib(bytes, gib_decimals);
}

}  // namespace plait
