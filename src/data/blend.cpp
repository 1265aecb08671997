#include "data/blend.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "core/error.h"

namespace plait::data {

Blend::Blend(std::span<const double> weights) : before_{0} {
  require(!weights.empty() && std::ranges::all_of(weights, [](double w) { return std::isfinite(w) && w > 0; }),
          "Blend: weights are above 0");
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (const double weight : weights) {
    const auto share = static_cast<std::uint64_t>(std::llround(std::ldexp(weight / sum, 40)));
    before_.push_back(before_.back() + std::max<std::uint64_t>(share, 1));
  }
}

std::int64_t Blend::to_left(std::int64_t samples, std::size_t first, std::size_t middle, std::size_t end) const {
  __extension__ using Wide = unsigned __int128;
  const std::uint64_t left = before_[middle] - before_[first], all = before_[end] - before_[first];
  return static_cast<std::int64_t>((static_cast<Wide>(samples) * left + all / 2) / all);
}

Blend::Place Blend::at(std::int64_t sample) const {
  require(sample >= 0, "Blend::at: samples count from 0");
  std::size_t first = 0, end = before_.size() - 1;
  while (end - first > 1) {
    const std::size_t middle = first + (end - first) / 2;
    const std::int64_t left = to_left(sample, first, middle, end);
    if (to_left(sample + 1, first, middle, end) > left) {
      sample = left;
      end = middle;
    } else {
      sample -= left;
      first = middle;
    }
  }
  return {first, sample};
}

std::vector<std::int64_t> Blend::taken(std::int64_t samples) const {
  std::vector<std::int64_t> counts(before_.size() - 1);
  const std::function<void(std::int64_t, std::size_t, std::size_t)> share = [&](std::int64_t count, std::size_t first,
                                                                                std::size_t end) {
    if (end - first == 1) {
      counts[first] = count;
      return;
    }
    const std::size_t middle = first + (end - first) / 2;
    const std::int64_t left = to_left(count, first, middle, end);
    share(left, first, middle);
    share(count - left, middle, end);
  };
  share(samples, 0, before_.size() - 1);
  return counts;
}

}  // namespace plait::data
