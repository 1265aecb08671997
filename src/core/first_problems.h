// Shortens long lists of problems.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"

namespace plait {

// The first 20, which are enough to show what is wrong, and the number of the rest: "and 980 more: WHAT".
std::vector<ConfigProblem> first_problems(std::vector<ConfigProblem> problems, const std::string& what);

}  // namespace plait
