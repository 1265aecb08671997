// Formats counts for people.
#pragma once

#include <string>

namespace plait {

std::string format_count(double value);  // "0.25", "987", "12.3k", "4.56M"

}  // namespace plait
