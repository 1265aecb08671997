#include "study/isoflop_profiles.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#include "core/error.h"
#include "core/philox.h"
#include "study/least_squares.h"
#include "study/statistics.h"

namespace plait::study {
namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t least_budgets = 3, least_sizes = 3;

// The profile of one budget. The parabola is loss = c0 + c1 x + c2 x², x = log N less its mean, through the runs around the
// lowest loss.
class Profile {
 public:
  explicit Profile(std::vector<LossPoint> runs) : all_(runs.size()) {
    for (const LossPoint& run : runs)
      flops_ += std::log(training_flops(run.parameters, run.tokens)) / static_cast<double>(runs.size());
    runs_ = around_the_lowest(std::move(runs));
    if (refused_.empty()) fit();
  }

  double log_flops() const { return flops_; }
  // Number of runs that the parabola is fitted to.
  std::size_t size() const { return runs_.size(); }

  // log N of the minimum, wherever it lies; NaN if the parabola has none.
  double log_minimum() const { return log_minimum_of(coefficients_); }

  // log_minimum() of the parabola through losses resampled by signs from `random`.
  double resampled_log_minimum(const Random& random, std::uint64_t first, std::uint64_t bootstrap) const {
    std::vector<double> losses(size());
    for (std::size_t i = 0; i < size(); ++i) {
      const bool up = (random.bits(first + i, bootstrap) & 1U) != 0;
      losses[i] = fitted_[i] + (up ? noise_[i] : -noise_[i]);
    }
    return log_minimum_of(least_squares(columns_, losses).coefficients);
  }

  bool has_residuals() const {
    return std::ranges::any_of(noise_, [](double n) { return n != 0; });
  }

  IsoflopMinimum minimum() const {
    IsoflopMinimum result;
    result.flops = std::exp(flops_);
    result.runs = static_cast<int>(all_);
    result.refused = refused_;
    if (!refused_.empty()) return result;
    const auto [least, most] = std::ranges::minmax(log_n_);
    const double at = log_minimum();
    if (!(at > least && at < most)) {
      result.refused = fmt::format(
          "no minimum inside the sizes: the losses around the lowest, from N={:.3g} to {:.3g}, are on no parabola that has "
          "one. "
          "Add sizes there",
          std::exp(least), std::exp(most));
      return result;
    }
    result.fitted = static_cast<int>(size());
    result.parameters = std::exp(at);
    result.tokens = result.flops / 6 / result.parameters;
    result.loss = value_at(at - middle_);
    return result;
  }

 private:
  // Refused unless there are a larger and a smaller size, each with a higher loss. Repeated runs of one size count with their
  // mean.
  std::vector<LossPoint> around_the_lowest(std::vector<LossPoint> runs) {
    std::map<double, std::pair<double, int>> sums;  // by size: sum of losses, and their number
    for (const LossPoint& run : runs) sums[run.parameters].first += run.loss, ++sums[run.parameters].second;
    const auto mean = [](const auto& size) { return size.second.first / size.second.second; };
    const auto lowest = std::ranges::min_element(sums, {}, mean);
    const std::string none = "no minimum inside the sizes: the loss ";
    if (lowest == sums.begin()) {
      refused_ = fmt::format("{}rises from the smallest, N={:.3g}. Add smaller sizes", none, lowest->first);
    } else if (std::next(lowest) == sums.end()) {
      refused_ = fmt::format("{}still falls at the largest, N={:.3g}. Add larger sizes", none, lowest->first);
    }
    if (!refused_.empty()) return runs;
    const double reach = fitted_within * (1 + 1e-6);  // sizes are rounded
    const double least = std::min(std::prev(lowest)->first, lowest->first / reach);
    const double most = std::max(std::next(lowest)->first, lowest->first * reach);
    std::erase_if(runs, [&](const LossPoint& run) { return run.parameters < least || run.parameters > most; });
    return runs;
  }

  void fit() {
    for (const LossPoint& run : runs_) {
      log_n_.push_back(std::log(run.parameters));
      middle_ += log_n_.back() / static_cast<double>(size());
    }
    columns_ = Columns(size(), 3);
    std::vector<double> losses(size());
    for (std::size_t i = 0; i < size(); ++i) {
      const double x = log_n_[i] - middle_;
      columns_.column(0)[i] = 1;
      columns_.column(1)[i] = x;
      columns_.column(2)[i] = x * x;
      losses[i] = runs_[i].loss;
    }
    coefficients_ = least_squares(columns_, losses).coefficients;
    const std::vector<double> leverage = leverages(columns_);
    for (std::size_t i = 0; i < size(); ++i) {
      fitted_.push_back(value_at(log_n_[i] - middle_));
      // A parabola through three points has leverage 1 everywhere: nothing is left to resample.
      noise_.push_back(leverage[i] > 1 - 1e-9 ? 0 : (losses[i] - fitted_[i]) / (1 - leverage[i]));
    }
  }

  double value_at(double x) const { return coefficients_[0] + x * (coefficients_[1] + x * coefficients_[2]); }
  double log_minimum_of(const std::vector<double>& c) const { return c[2] > 0 ? middle_ - c[1] / (2 * c[2]) : nothing; }

  std::size_t all_;  // runs, including those that the parabola is not fitted to
  std::string refused_;
  std::vector<LossPoint> runs_;
  Columns columns_{0, 3};
  std::vector<double> log_n_, coefficients_, fitted_, noise_;
  double middle_ = 0, flops_ = 0;
};

// By budget, ascending; those with too few sizes are left out.
std::vector<Profile> profiles_of(std::span<const LossPoint> points) {
  std::vector<LossPoint> sorted(points.begin(), points.end());
  const auto flops = [](const LossPoint& p) { return training_flops(p.parameters, p.tokens); };
  std::ranges::sort(sorted, {}, flops);
  std::vector<Profile> profiles;
  for (std::size_t first = 0; first < sorted.size();) {
    std::size_t end = first;
    std::set<double> sizes;
    while (end < sorted.size() && flops(sorted[end]) <= flops(sorted[first]) * (1 + budget_tolerance))
      sizes.insert(sorted[end++].parameters);
    if (sizes.size() >= least_sizes) {
      profiles.emplace_back(std::vector<LossPoint>(sorted.begin() + static_cast<std::ptrdiff_t>(first),
                                                   sorted.begin() + static_cast<std::ptrdiff_t>(end)));
    }
    first = end;
  }
  return profiles;
}

struct Line {
  double intercept = nothing, slope = nothing;
};

// A line through (x, y) where y is a number; none through fewer than two.
Line line_through(const std::vector<double>& x, const std::vector<double>& y) {
  std::vector<std::size_t> there;
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (!std::isnan(y[i])) there.push_back(i);
  }
  if (there.size() < 2) return {};
  Columns columns(there.size(), 2);
  std::vector<double> values(there.size());
  for (std::size_t i = 0; i < there.size(); ++i) {
    columns.column(0)[i] = 1;
    columns.column(1)[i] = x[there[i]];
    values[i] = y[there[i]];
  }
  const std::vector<double> found = least_squares(columns, values).coefficients;
  return {found[0], found[1]};
}

}  // namespace

IsoflopFit fit_isoflop_profiles(std::span<const LossPoint> points, const ScalingLawOptions& options) {
  for (const LossPoint& point : points) require_usable(point);
  const std::vector<Profile> all = profiles_of(points);
  IsoflopFit fit;
  std::vector<std::size_t> good;
  std::vector<double> log_flops, log_minima;
  double degrees_of_freedom = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    fit.budgets.push_back(all[i].minimum());
    if (!fit.budgets[i].refused.empty()) continue;
    good.push_back(i);
    log_flops.push_back(all[i].log_flops());
    log_minima.push_back(all[i].log_minimum());
    degrees_of_freedom += static_cast<double>(all[i].size()) - 3;
  }
  const Line line = good.size() >= least_budgets ? line_through(log_flops, log_minima) : Line{};
  if (good.size() < least_budgets) {
    fit.refused = fmt::format("a power law of the best sizes needs {} budgets whose minimum lies inside their sizes, not {}",
                              least_budgets, good.size());
  } else {
    fit.exponent = line.slope;
    fit.coefficient = std::exp(line.intercept);
  }
  // The minima of all budgets come from one draw, so that the exponent's interval follows from theirs.
  const Random random(options.seed, "isoflop bootstrap");
  std::vector<std::vector<double>> minima(good.size());
  std::vector<double> slopes;
  for (std::uint64_t b = 0; b < static_cast<std::uint64_t>(options.bootstraps); ++b) {
    std::vector<double> drawn;
    std::uint64_t first = 0;
    for (std::size_t g = 0; g < good.size(); ++g) {
      drawn.push_back(all[good[g]].resampled_log_minimum(random, first, b));
      minima[g].push_back(drawn.back());
      first += all[good[g]].size();
    }
    slopes.push_back(line_through(log_flops, drawn).slope);
  }
  const double freedom = std::max(degrees_of_freedom, 1.0);
  for (std::size_t g = 0; g < good.size(); ++g) {
    const bool can_tell = all[good[g]].has_residuals();
    const Interval logs = can_tell ? bootstrap_interval(minima[g], options.confidence, freedom) : Interval{nothing, nothing};
    fit.budgets[good[g]].parameters_interval = {std::exp(logs.low), std::exp(logs.high)};
  }
  const bool any_residuals = std::ranges::any_of(good, [&](std::size_t g) { return all[g].has_residuals(); });
  if (fit.refused.empty())
    fit.exponent_interval =
        any_residuals ? bootstrap_interval(slopes, options.confidence, freedom) : Interval{nothing, nothing};
  return fit;
}

}  // namespace plait::study
