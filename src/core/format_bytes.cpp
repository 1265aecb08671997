#include "core/format_bytes.h"

#include <spdlog/fmt/fmt.h>

#include "core/units.h"

namespace plait {

std::string format_gib(double bytes, int decimals) { return fmt::format("{:.{}f} GiB", bytes / gib, decimals); }

std::string format_bytes(double bytes) { return bytes < gib ? fmt::format("{:.1f} MiB", bytes / mib) : format_gib(bytes); }

}  // namespace plait
