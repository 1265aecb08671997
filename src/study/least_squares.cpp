#include "study/least_squares.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace plait::study {
namespace {

// The remaining share of a column above which it counts as independent of those before it.
constexpr double independent = 1e-12;

double product(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

void subtract(std::span<double> from, double factor, std::span<const double> column) {
  for (std::size_t i = 0; i < from.size(); ++i) from[i] -= factor * column[i];
}

// Makes the columns orthonormal, each against those before it; `r`, if given, gets the upper triangular factor, by rows. A
// dependent column becomes zero, and so does its diagonal element.
void orthonormalize(Columns& q, std::vector<double>* r) {
  const std::size_t columns = q.columns();
  if (r != nullptr) r->assign(columns * columns, 0.0);
  for (std::size_t c = 0; c < columns; ++c) {
    const std::span<double> column = q.column(c);
    const double whole = std::sqrt(product(column, column));
    for (std::size_t before = 0; before < c; ++before) {
      const double factor = product(q.column(before), column);
      subtract(column, factor, q.column(before));
      if (r != nullptr) (*r)[before * columns + c] = factor;
    }
    const double rest = std::sqrt(product(column, column));
    const bool counts = rest > independent * whole;
    for (double& value : column) value = counts ? value / rest : 0.0;
    if (r != nullptr) (*r)[c * columns + c] = counts ? rest : 0.0;
  }
}

}  // namespace

LeastSquares least_squares(const Columns& x, std::span<const double> y) {
  require(y.size() == x.rows(), "least_squares: as many observations as rows");
  const std::size_t columns = x.columns();
  Columns q = x;
  std::vector<double> r, left(y.begin(), y.end()), right(columns);
  orthonormalize(q, &r);
  for (std::size_t c = 0; c < columns; ++c) {
    right[c] = product(q.column(c), left);
    subtract(left, right[c], q.column(c));
  }
  LeastSquares result{std::vector<double>(columns), product(left, left)};
  for (std::size_t c = columns; c-- > 0;) {
    double value = right[c];
    for (std::size_t after = c + 1; after < columns; ++after) value -= r[c * columns + after] * result.coefficients[after];
    const double diagonal = r[c * columns + c];
    result.coefficients[c] = diagonal > 0 ? value / diagonal : 0.0;
  }
  return result;
}

LeastSquares nonnegative_least_squares(const Columns& x, std::span<const double> y) {
  const auto negative = [](double value) { return value < 0; };
  LeastSquares best = least_squares(x, y);
  if (std::ranges::none_of(best.coefficients, negative)) return best;
  const std::size_t columns = x.columns();
  require(columns <= 8, "nonnegative_least_squares: at most 8 columns");
  best = {std::vector<double>(columns), product(y, y)};
  for (std::uint32_t subset = 1; subset + 1 < (1U << columns); ++subset) {
    std::vector<std::size_t> chosen;
    for (std::size_t c = 0; c < columns; ++c) {
      if ((subset >> c & 1U) != 0) chosen.push_back(c);
    }
    Columns part(x.rows(), chosen.size());
    for (std::size_t c = 0; c < chosen.size(); ++c) std::ranges::copy(x.column(chosen[c]), part.column(c).begin());
    const LeastSquares found = least_squares(part, y);
    if (found.squares >= best.squares || std::ranges::any_of(found.coefficients, negative)) continue;
    best = {std::vector<double>(columns), found.squares};
    for (std::size_t c = 0; c < chosen.size(); ++c) best.coefficients[chosen[c]] = found.coefficients[c];
  }
  return best;
}

std::vector<double> leverages(const Columns& x) {
  Columns q = x;
  orthonormalize(q, nullptr);
  std::vector<double> result(x.rows());
  for (std::size_t c = 0; c < q.columns(); ++c) {
    for (std::size_t i = 0; i < q.rows(); ++i) result[i] += q.column(c)[i] * q.column(c)[i];
  }
  return result;
}

}  // namespace plait::study
