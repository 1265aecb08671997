// Ranks of values, for statistics that do not ask which distribution they are from.
#pragma once

#include <vector>

namespace plait::study {

// Twice the ranks, from 2: equal values share the mean of theirs, and twice that is whole.
std::vector<int> doubled_ranks(const std::vector<double>& values);

}  // namespace plait::study
