// Long lists of problems, shortened.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"

namespace plait {

// The first 20, which is enough to see what is wrong, and of more the number: "and 980 more: WHAT".
std::vector<ConfigProblem> first_problems(std::vector<ConfigProblem> problems, const std::string& what);

}  // namespace plait
