#include "study/quantiles.h"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>

namespace plait::study {
namespace {

double quantile_of_sorted(const std::vector<double>& values, double share) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double position = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const double rest = position - static_cast<double>(below);
  // Skips the second value if it has no share, because it may be infinite.
  return rest > 0 ? values[below] + rest * (values[below + 1] - values[below]) : values[below];
}

std::vector<double> sorted_numbers(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  std::ranges::sort(values);
  return values;
}

}  // namespace

double sample_quantile(std::vector<double> values, double share) {
  return quantile_of_sorted(sorted_numbers(std::move(values)), share);
}

Interval bootstrap_interval(const std::vector<double>& values, double confidence, double degrees_of_freedom) {
  const boost::math::students_t student(degrees_of_freedom);
  const double tail = boost::math::cdf(boost::math::normal(), boost::math::quantile(student, (1 - confidence) / 2));
  const std::vector<double> sorted = sorted_numbers(values);
  return {quantile_of_sorted(sorted, tail), quantile_of_sorted(sorted, 1 - tail)};
}

}  // namespace plait::study
