#include "study/statistics.h"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/special_functions/binomial.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "core/error.h"

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

constexpr std::size_t most_exact = 100;
constexpr double outside = 0.025;  // of a 95 % interval, on each side

// The probability of each sum of `count` of these ranks, every choice being equally likely.
std::vector<double> sum_distribution(const std::vector<int>& ranks, std::size_t count) {
  const auto most = static_cast<std::size_t>(std::accumulate(ranks.begin(), ranks.end(), 0));
  // ways[k][s]: choices of k ranks with the sum s. Doubles: only their ratios matter, and 100 choose 50 is 1e29.
  std::vector<std::vector<double>> ways(count + 1, std::vector<double>(most + 1));
  ways[0][0] = 1;
  for (const int rank : ranks) {
    const auto step = static_cast<std::size_t>(rank);
    for (std::size_t k = count; k >= 1; --k) {
      for (std::size_t s = most; s >= step; --s) ways[k][s] += ways[k - 1][s - step];
    }
  }
  const double all = std::accumulate(ways[count].begin(), ways[count].end(), 0.0);
  for (double& way : ways[count]) way /= all;
  return ways[count];
}

double normal_p(const std::vector<int>& doubled, std::size_t a, std::size_t b) {
  double sum = 0, squares = 0;
  const auto n = static_cast<double>(doubled.size());
  const double mean_rank = (n + 1) / 2;
  for (std::size_t i = 0; i < doubled.size(); ++i) {
    const double rank = doubled[i] / 2.0;
    if (i < a) sum += rank;
    squares += (rank - mean_rank) * (rank - mean_rank);
  }
  const auto of_a = static_cast<double>(a), of_b = static_cast<double>(b);
  const double deviation = std::sqrt(of_a * of_b / (n * (n - 1)) * squares);
  if (!(deviation > 0)) return 1;
  const double z = std::max(0.0, std::abs(sum - of_a * mean_rank) - 0.5) / deviation;
  return std::min(1.0, 2 * boost::math::cdf(boost::math::complement(boost::math::normal(), z)));
}

// The number of the smallest, and of the largest, ratios that an interval leaves out.
std::size_t left_out(std::size_t a, std::size_t b) {
  if (a + b > most_exact) {
    const auto x = static_cast<double>(a), y = static_cast<double>(b);
    const double reach = boost::math::quantile(boost::math::complement(boost::math::normal(), outside));
    return static_cast<std::size_t>(std::max(0.0, std::floor(x * y / 2 - reach * std::sqrt(x * y * (x + y + 1) / 12))));
  }
  std::vector<int> ranks(a + b);
  for (std::size_t n = 0; n < ranks.size(); ++n) ranks[n] = static_cast<int>(n) + 1;
  const std::vector<double> sums = sum_distribution(ranks, a);
  const std::size_t least = a * (a + 1) / 2;
  double below = 0;
  std::size_t count = 0;
  while (2 * count < a * b && below + sums[least + count] <= outside) below += sums[least + count++];
  return count;
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

double rank_sum_p(const std::vector<double>& a, const std::vector<double>& b) {
  require(!a.empty() && !b.empty(), "rank_sum_p: a sample is empty");
  std::vector<double> pooled = a;
  pooled.insert(pooled.end(), b.begin(), b.end());
  const std::vector<int> ranks = doubled_ranks(pooled);
  if (pooled.size() > most_exact) return normal_p(ranks, a.size(), b.size());
  const auto size_of_a = static_cast<std::ptrdiff_t>(a.size());
  const int sum = std::accumulate(ranks.begin(), ranks.begin() + size_of_a, 0);
  // Doubled, so that it is whole: the sum of the doubled ranks of a is a * (n + 1) on average.
  const int mean = static_cast<int>(a.size() * (pooled.size() + 1));
  const std::vector<double> sums = sum_distribution(ranks, a.size());
  double p = 0;
  for (std::size_t s = 0; s < sums.size(); ++s) {
    if (std::abs(static_cast<int>(s) - mean) >= std::abs(sum - mean)) p += sums[s];
  }
  return std::min(1.0, p);
}

double least_rank_sum_p(std::size_t a, std::size_t b) {
  const auto all = static_cast<unsigned>(a + b);
  if (a + b > most_exact) return 0;
  return std::min(1.0, 2 / boost::math::binomial_coefficient<double>(all, static_cast<unsigned>(a)));
}

Factor factor_between(const std::vector<double>& a, const std::vector<double>& b) {
  require(!a.empty() && !b.empty(), "factor_between: a sample is empty");
  std::vector<double> ratios;
  for (const double x : a) {
    require(x > 0, "factor_between: a value is not positive");
    for (const double y : b) ratios.push_back(y / x);
  }
  std::ranges::sort(ratios);
  const std::size_t cut = left_out(a.size(), b.size());
  return {median(ratios), {ratios[cut], ratios[ratios.size() - 1 - cut]}};
}

std::vector<double> holm_corrected(const std::vector<double>& p) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t n) { return p[n]; });
  std::vector<double> corrected(p.size());
  double most = 0;
  for (std::size_t n = 0; n < order.size(); ++n) {
    most = std::max(most, std::min(1.0, static_cast<double>(p.size() - n) * p[order[n]]));
    corrected[order[n]] = most;
  }
  return corrected;
}

}  // namespace plait::study
