#include "core/statistics.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <cmath>
#include <numeric>

#include "core/error.h"

namespace plait {

double median(std::vector<double> values) {
  require(!values.empty(), "median of nothing");
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double mean(const std::vector<double>& values) {
  require(!values.empty(), "mean of nothing");
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double expected_largest(std::vector<double> values, int draws) {
  require(!values.empty(), "expected_largest of nothing");
  std::sort(values.begin(), values.end());
  const auto none_above = [&](std::size_t n) {  // for the n smallest
    return std::pow(static_cast<double>(n) / static_cast<double>(values.size()), draws);
  };
  double expected = 0;
  for (std::size_t n = 0; n < values.size(); ++n) expected += values[n] * (none_above(n + 1) - none_above(n));
  return expected;
}

Spread spread(const std::vector<double>& values) {
  const double middle = median(values);
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {middle, *least, *most};
}

Interval median_interval(std::vector<double> values, double confidence) {
  require(!values.empty(), "interval of the median of nothing");
  require(confidence > 0 && confidence < 1, "median_interval: a confidence is between 0 and 1");
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  const boost::math::binomial_distribution<double> below(count, 0.5);
  // The largest k such that fewer than k values fall below the median in at most half of the cases outside the confidence.
  std::size_t k = 1;
  while (2 * (k + 1) <= values.size() && 2 * boost::math::cdf(below, static_cast<double>(k)) <= 1 - confidence) ++k;
  return {values[k - 1], values[values.size() - k]};
}

double time_alone(const PairedTimes& times, std::size_t i) {
  require(times.alone.size() == times.beside.size() + 1 && i < times.beside.size(),
          "paired times: a run is not enclosed by two alone");
  return (times.alone[i] + times.alone[i + 1]) / 2;
}

double slowdown(const PairedTimes& times, std::size_t i) { return 1 - time_alone(times, i) / times.beside[i]; }

double lengthening(const PairedTimes& times, std::size_t i) { return times.beside[i] / time_alone(times, i) - 1; }

double noise(const std::vector<double>& alone, int rounds) {
  std::vector<double> apparent;
  for (std::size_t i = 1; i + 1 < alone.size(); ++i)
    apparent.push_back(std::abs(1 - (alone[i - 1] + alone[i + 1]) / 2 / alone[i]));
  if (apparent.empty()) return 0;
  std::sort(apparent.begin(), apparent.end());
  return apparent[(3 * apparent.size() - 1) / 4] * std::sqrt(5.0 / rounds);
}

}  // namespace plait
