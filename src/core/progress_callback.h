// What a long computation tells of how far it is.
#pragma once

#include <functional>
#include <string>

namespace plait {

// What a long computation calls to tell how far it is: the part that is done, 0 to 1, and what it does now, which may be empty.
// core/task_progress.h shows it.
using ProgressCallback = std::function<void(double done, const std::string& now)>;

inline const ProgressCallback no_progress = [](double, const std::string&) {};

}  // namespace plait
