// Ranks of values, for distribution-free statistics.
#pragma once

#include <vector>

namespace plait::study {

// Twice the ranks, from 2: equal values share the mean of their ranks, and twice that is whole.
std::vector<int> doubled_ranks(const std::vector<double>& values);

}  // namespace plait::study
