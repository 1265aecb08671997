// The callback by which a long computation reports its progress.
#pragma once

#include <functional>
#include <string>

namespace plait {

// Receives the part that is done, 0 to 1, and the current activity, which may be empty. core/task_progress.h shows it.
using ProgressCallback = std::function<void(double done, const std::string& now)>;

inline const ProgressCallback no_progress = [](double, const std::string&) {};

}  // namespace plait
