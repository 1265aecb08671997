// Formats times for people.
#pragma once

#include <chrono>
#include <string>

namespace plait {

std::string format_duration(std::chrono::seconds duration);  // "0:07", "12:30", "3:05:00", "2d 03:05"

}  // namespace plait
