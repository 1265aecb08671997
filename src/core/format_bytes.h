// Formats amounts of memory for people.
#pragma once

#include <string>

namespace plait {

std::string format_gib(double bytes, int decimals = 1);        // "12.3 GiB"
std::string format_bytes(double bytes, int gib_decimals = 1);  // "987 bytes", "1.5 KiB", "512.0 MiB", "12.3 GiB"

}  // namespace plait
