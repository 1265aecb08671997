// Quantiles of resampled values.
#pragma once

#include <vector>

#include "core/statistics.h"

namespace plait::study {

// Interpolates linearly between the order statistics; 0 <= share <= 1. NaNs do not count; NaN if there are no other values.
double sample_quantile(std::vector<double> values, double share);

// The bootstrap's expanded percentile interval (Hesterberg, "What Teachers Should Know About the Bootstrap", 2015, section
// 4.2): the quantiles beyond which the values are as rare as a normal variable beyond Student's quantile for as many degrees of
// freedom (observations less unknowns). It makes up for estimating the scale of the noise from only a few residuals.
Interval bootstrap_interval(const std::vector<double>& values, double confidence, double degrees_of_freedom);

}  // namespace plait::study
