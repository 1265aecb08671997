#include "study/scaling_law.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "core/error.h"
#include "core/philox.h"
#include "study/least_squares.h"
#include "study/statistics.h"

namespace plait::study {
namespace {

constexpr std::size_t unknowns = 5;
constexpr std::size_t grid_size = 20;
constexpr double huber_threshold = 1.345;  // multiple of the residuals' scale
constexpr double normal_scale = 1.4826;    // standard deviation of normal noise / median of its absolute values
constexpr double exact = 1e-11;            // smaller residuals are only rounding
constexpr double negligible = 1e-6;        // share of the loss below which a term counts as 0

using Weights = std::vector<double>;

// A law in units of the data's middle, where its terms have similar sizes and the columns are well separated.
struct State {
  double alpha = 0, beta = 0;
  std::array<double, 3> terms{};  // E, and A / N^alpha and B / D^beta in the middle
  double squares = std::numeric_limits<double>::infinity();
};

class LossData {
 public:
  explicit LossData(std::span<const LossPoint> points) {
    for (const LossPoint& point : points) {
      log_n_.push_back(std::log(point.parameters));
      log_d_.push_back(std::log(point.tokens));
      loss_.push_back(point.loss);
    }
    for (const double value : log_n_) middle_n_ += value / static_cast<double>(size());
    for (const double value : log_d_) middle_d_ += value / static_cast<double>(size());
  }

  std::size_t size() const { return loss_.size(); }
  void set_losses(std::vector<double> losses) { loss_ = std::move(losses); }

  // The best terms for these exponents.
  State project(double alpha, double beta, const Weights& weights) const {
    Columns x(size(), 3);
    std::vector<double> y(size());
    for (std::size_t i = 0; i < size(); ++i) {
      const double by = weights[i] / loss_[i];
      x.column(0)[i] = by;
      x.column(1)[i] = by * n_power(i, alpha);
      x.column(2)[i] = by * d_power(i, beta);
      y[i] = weights[i];
    }
    const LeastSquares found = nonnegative_least_squares(x, y);
    return {alpha, beta, {found.coefficients[0], found.coefficients[1], found.coefficients[2]}, found.squares};
  }

  double predicted(const State& s, std::size_t i) const {
    return s.terms[0] + s.terms[1] * n_power(i, s.alpha) + s.terms[2] * d_power(i, s.beta);
  }

  // 1 - law / loss.
  std::vector<double> residuals(const State& s) const {
    std::vector<double> r(size());
    for (std::size_t i = 0; i < size(); ++i) r[i] = 1 - predicted(s, i) / loss_[i];
    return r;
  }

  // The derivatives of law / loss by the terms, alpha and beta. A term that is 0 stays there, and so does its exponent.
  Columns slopes(const State& s, const Weights& weights) const {
    Columns x(size(), unknowns);
    for (std::size_t i = 0; i < size(); ++i) {
      const double by = weights[i] / loss_[i], n = by * n_power(i, s.alpha), d = by * d_power(i, s.beta);
      x.column(0)[i] = s.terms[0] > 0 ? by : 0;
      x.column(1)[i] = s.terms[1] > 0 ? n : 0;
      x.column(2)[i] = s.terms[2] > 0 ? d : 0;
      x.column(3)[i] = -s.terms[1] * n * (log_n_[i] - middle_n_);
      x.column(4)[i] = -s.terms[2] * d * (log_d_[i] - middle_d_);
    }
    return x;
  }

  ScalingLaw law(const State& s) const {
    return {s.terms[0], s.terms[1] * std::exp(s.alpha * middle_n_), s.alpha, s.terms[2] * std::exp(s.beta * middle_d_), s.beta};
  }

 private:
  double n_power(std::size_t i, double alpha) const { return std::exp(-alpha * (log_n_[i] - middle_n_)); }
  double d_power(std::size_t i, double beta) const { return std::exp(-beta * (log_d_[i] - middle_d_)); }

  std::vector<double> log_n_, log_d_, loss_;
  double middle_n_ = 0, middle_d_ = 0;
};

// The square roots of Huber's weights.
Weights huber_weights(const std::vector<double>& residuals, double scale) {
  Weights weights(residuals.size(), 1.0);
  if (scale <= exact) return weights;
  for (std::size_t i = 0; i < residuals.size(); ++i) {
    const double size = std::abs(residuals[i]) / (huber_threshold * scale);
    if (size > 1) weights[i] = 1 / std::sqrt(size);
  }
  return weights;
}

// From the median of the absolute residuals; without the smallest, since the fit makes as many of them small as it has
// unknowns.
double robust_scale(std::vector<double> residuals) {
  for (double& r : residuals) r = std::abs(r);
  std::ranges::sort(residuals);
  residuals.erase(residuals.begin(), residuals.begin() + std::min<std::ptrdiff_t>(unknowns, std::ssize(residuals) - 1));
  return normal_scale * median(residuals);
}

double within_bounds(double exponent) { return std::clamp(exponent, least_exponent, most_exponent); }

// Gauss-Newton on the projected problem from `start`. `scale`: of the residuals for Huber's weights, renewed at every step; 0:
// least squares. Runs until a step moves the exponents by less than `tolerance`.
State refine(const LossData& data, State start, double scale, double tolerance = 1e-9) {
  State now = start;
  for (int iteration = 0; iteration < 60; ++iteration) {
    const Weights weights = huber_weights(data.residuals(now), scale);
    now = data.project(now.alpha, now.beta, weights);
    std::vector<double> target = data.residuals(now);
    for (std::size_t i = 0; i < target.size(); ++i) target[i] *= weights[i];
    const LeastSquares step = least_squares(data.slopes(now, weights), target);
    State best = now;
    double length = 1;
    for (int halving = 0; halving < 12; ++halving, length /= 2) {
      best = data.project(within_bounds(now.alpha + length * step.coefficients[3]),
                          within_bounds(now.beta + length * step.coefficients[4]), weights);
      if (best.squares < now.squares) break;
    }
    const double moved = std::max(std::abs(best.alpha - now.alpha), std::abs(best.beta - now.beta));
    if (!(best.squares < now.squares)) break;
    now = best;
    if (moved < tolerance) break;
  }
  return now;
}

// The best least squares fit over all local minima of a grid of the exponents.
State search(const LossData& data) {
  const Weights equal(data.size(), 1.0);
  std::vector<double> exponents(grid_size);
  for (std::size_t i = 0; i < grid_size; ++i) {
    exponents[i] = least_exponent * std::pow(most_exponent / least_exponent, static_cast<double>(i) / (grid_size - 1));
  }
  std::vector<State> grid;
  for (const double alpha : exponents) {
    for (const double beta : exponents) grid.push_back(data.project(alpha, beta, equal));
  }
  const auto at = [&](std::size_t a, std::size_t b) -> const State& { return grid[a * grid_size + b]; };
  const auto is_local_minimum = [&](std::size_t a, std::size_t b) {
    for (std::size_t i = a - std::min<std::size_t>(a, 1); i <= std::min(a + 1, grid_size - 1); ++i) {
      for (std::size_t j = b - std::min<std::size_t>(b, 1); j <= std::min(b + 1, grid_size - 1); ++j) {
        if (at(i, j).squares < at(a, b).squares) return false;
      }
    }
    return true;
  };
  State best;
  for (std::size_t a = 0; a < grid_size; ++a) {
    for (std::size_t b = 0; b < grid_size; ++b) {
      if (!is_local_minimum(a, b)) continue;
      const State found = refine(data, at(a, b), 0);
      if (found.squares < best.squares) best = found;
    }
  }
  return best;
}

std::string why_not_interior(const State& s) {
  const auto on_bound = [](double exponent) { return exponent <= least_exponent || exponent >= most_exponent; };
  const double least_term = negligible * (s.terms[0] + s.terms[1] + s.terms[2]);
  if (s.terms[1] <= least_term)
    return "the loss does not fall with the size of the model: A is 0. Add sizes, over a wider range";
  if (s.terms[2] <= least_term) return "the loss does not fall with the tokens: B is 0. Add budgets, over a wider range";
  if (on_bound(s.alpha)) {
    return fmt::format(
        "the fit has no interior minimum: alpha runs to {:g}, the bound of the search. Add sizes, over a wider range", s.alpha);
  }
  if (on_bound(s.beta)) {
    return fmt::format(
        "the fit has no interior minimum: beta runs to {:g}, the bound of the search. Add budgets, over a wider range", s.beta);
  }
  if (s.terms[0] <= least_term) {
    return "the fit has no interior minimum: E runs to 0, so the losses do not show yet where they level off. Add larger "
           "budgets";
  }
  return "";
}

void check_points(std::span<const LossPoint> points) {
  std::set<double> sizes, tokens;
  for (const LossPoint& point : points) {
    require_usable(point);
    sizes.insert(point.parameters);
    tokens.insert(point.tokens);
  }
  if (points.size() <= unknowns || sizes.size() < 3 || tokens.size() < 3) {
    throw ConfigError(
        fmt::format("a scaling law has {} unknowns: it needs at least {} runs, of 3 sizes and 3 numbers of tokens; "
                    "there are {} runs, of {} sizes and {} numbers of tokens",
                    unknowns, unknowns + 1, points.size(), sizes.size(), tokens.size()));
  }
}

std::vector<ScalingLaw> bootstrap_laws(LossData data, const State& fitted, double scale, const ScalingLawOptions& options) {
  const std::vector<double> residuals = data.residuals(fitted);
  const std::vector<double> leverage = leverages(data.slopes(fitted, huber_weights(residuals, scale)));
  std::vector<double> predicted(data.size()), noise(data.size());
  for (std::size_t i = 0; i < data.size(); ++i) {
    predicted[i] = data.predicted(fitted, i);
    noise[i] = residuals[i] / std::max(1 - leverage[i], 0.05);  // bounded for a point that alone determines an unknown
  }
  const Random random(options.seed, "scaling law bootstrap");
  std::vector<ScalingLaw> laws;
  for (int b = 0; b < options.bootstraps; ++b) {
    std::vector<double> losses(data.size());
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const bool up = (random.bits(i, static_cast<std::uint64_t>(b)) & 1U) != 0;
      losses[i] = predicted[i] / (1 - std::clamp(up ? noise[i] : -noise[i], -0.9, 0.9));
    }
    data.set_losses(std::move(losses));
    laws.push_back(data.law(refine(data, fitted, scale, 1e-5)));  // far below the width of any interval
  }
  return laws;
}

}  // namespace

double ScalingLaw::loss(double parameters, double tokens) const {
  return E + A * std::pow(parameters, -alpha) + B * std::pow(tokens, -beta);
}

void require_usable(const LossPoint& point) {
  for (const double value : {point.parameters, point.tokens, point.loss}) {
    if (std::isfinite(value) && value > 0) continue;
    throw ConfigError(fmt::format("a scaling law needs positive, finite values: N={}, D={}, loss={}", point.parameters,
                                  point.tokens, point.loss));
  }
}

// The point where the two slopes along 6 N D = flops are equal: alpha A / N^alpha = beta B / D^beta (Hoffmann et al., equation
// 4).
double ScalingLaw::best_parameters(double flops) const {
  return std::pow(alpha * A / (beta * B), 1 / (alpha + beta)) * std::pow(flops / 6, parameter_exponent());
}

double ScalingLaw::best_tokens(double flops) const { return flops / 6 / best_parameters(flops); }

Interval ScalingLawFit::interval(const std::function<double(const ScalingLaw&)>& of) const {
  std::vector<double> values;
  for (const ScalingLaw& bootstrap : bootstraps) values.push_back(of(bootstrap));
  return bootstrap_interval(values, confidence, degrees_of_freedom);
}

ScalingLawFit fit_scaling_law(std::span<const LossPoint> points, const ScalingLawOptions& options) {
  require(options.confidence > 0 && options.confidence < 1 && options.bootstraps >= 1, "fit_scaling_law: options");
  check_points(points);
  const LossData data(points);
  ScalingLawFit fit;
  fit.confidence = options.confidence;
  fit.degrees_of_freedom = static_cast<double>(points.size() - unknowns);
  State state = search(data);
  double scale = 0;
  for (int round = 0; round < 30; ++round) {
    const double next = robust_scale(data.residuals(state));
    const bool settled = std::abs(next - scale) <= 1e-3 * next;
    scale = next;
    if (settled || scale <= exact) break;
    state = refine(data, state, scale);
  }
  fit.refused = why_not_interior(state);
  if (!fit.refused.empty()) return fit;
  fit.law = data.law(state);
  fit.residual_scale = scale;
  fit.bootstraps = bootstrap_laws(data, state, scale, options);
  return fit;
}

}  // namespace plait::study
