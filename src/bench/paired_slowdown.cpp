#include "bench/paired_slowdown.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/statistics.h"

namespace plait::bench {

Spread spread(const std::vector<double>& values) {
  const double middle = median(values);
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {middle, *least, *most};
}

double time_alone(const PairedTimes& times, std::size_t i) {
  require(times.alone.size() == times.beside.size() + 1 && i < times.beside.size(),
          "paired times: a run is not enclosed by two alone");
  return (times.alone[i] + times.alone[i + 1]) / 2;
}

double slowdown(const PairedTimes& times, std::size_t i) { return 1 - time_alone(times, i) / times.beside[i]; }

double noise(const std::vector<double>& alone, int rounds) {
  std::vector<double> apparent;
  for (std::size_t i = 1; i + 1 < alone.size(); ++i)
    apparent.push_back(std::abs(1 - (alone[i - 1] + alone[i + 1]) / 2 / alone[i]));
  if (apparent.empty()) return 0;
  std::sort(apparent.begin(), apparent.end());
  return apparent[(3 * apparent.size() - 1) / 4] * std::sqrt(5.0 / rounds);
}

}  // namespace plait::bench
