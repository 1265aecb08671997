// Numbers that launchers pass in environment variables.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"

namespace plait::site {

// -1: not set, or not a number from 0 on.
int number_in(const char* variable);

// The variable as a number from `least` on; otherwise adds to `problems`.
int number_of(const char* variable, std::vector<ConfigProblem>& problems, int least = 0);

// Throws the problems, and one of its own for a rank that is not below the number of ranks.
void check_place(int rank, int size, const char* rank_name, std::vector<ConfigProblem>& problems);

}  // namespace plait::site
