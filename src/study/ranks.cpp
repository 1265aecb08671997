#include "study/ranks.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace plait::study {

std::vector<int> doubled_ranks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t n) { return values[n]; });
  std::vector<int> ranks(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t end = first;
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    for (std::size_t n = first; n < end; ++n) ranks[order[n]] = static_cast<int>(first + end + 1);
    first = end;
  }
  return ranks;
}

}  // namespace plait::study
