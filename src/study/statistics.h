// Statistics that assume no distribution: quantiles of resampled values, ranks, and tests if two samples come from
// distributions that differ in location.
#pragma once

#include <optional>
#include <vector>

#include "core/statistics.h"

namespace plait::study {

// Interpolates linearly between the order statistics; 0 <= share <= 1. NaNs do not count; NaN if there are no other values.
double sample_quantile(std::vector<double> values, double share);

// The bootstrap's expanded percentile interval (Hesterberg, "What Teachers Should Know About the Bootstrap", 2015, section
// 4.2): the quantiles beyond which the values are as rare as a normal variable beyond Student's quantile for as many degrees of
// freedom (observations less unknowns). It makes up for estimating the scale of the noise from only a few residuals.
Interval bootstrap_interval(const std::vector<double>& values, double confidence, double degrees_of_freedom);

// Twice the ranks, from 2: equal values share the mean of their ranks, and twice that is whole.
std::vector<int> doubled_ranks(const std::vector<double>& values);

// The two-sided p of the Mann–Whitney (Wilcoxon rank-sum) test: the probability of ranks at least as far apart if both samples
// have one distribution. Equal values share their ranks. Exact, over all ways to divide the pooled ranks (Streitberg and Röhmel
// 1986), for up to 100 values together; beyond that normal, with corrections for ties and continuity. Both need at least one
// value.
double rank_sum_p(const std::vector<double>& a, const std::vector<double>& b);

// The least p that samples of these sizes can have: with 3 and 3 it is 0.1, so they can prove nothing at 5 %.
double least_rank_sum_p(std::size_t a, std::size_t b);

// The factor by which b is larger than a: the median of all b / a and the 95 % interval that belongs to the rank-sum test
// (Hodges and Lehmann 1963) of the factor that would make both equal. For samples too small for 95 % (3 and 3: 90 %) it spans
// all b / a. All values are positive.
struct Factor {
  double value = 1;
  Interval interval{1, 1};
};
Factor factor_between(const std::vector<double>& a, const std::vector<double>& b);

// Holm's step-down correction: p values that may all be compared with one level, which then bounds the probability of any false
// positive among them.
std::vector<double> holm_corrected(const std::vector<double>& p);

}  // namespace plait::study
