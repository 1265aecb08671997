// Linear least squares with a handful of columns, for the innermost loop of scaling law fits.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace plait::study {

// A matrix, stored by columns.
class Columns {
 public:
  Columns(std::size_t rows, std::size_t columns) : rows_(rows), values_(rows * columns) {}
  std::size_t rows() const { return rows_; }
  std::size_t columns() const { return rows_ == 0 ? 0 : values_.size() / rows_; }
  std::span<double> column(std::size_t c) { return std::span(values_).subspan(c * rows_, rows_); }
  std::span<const double> column(std::size_t c) const { return std::span(values_).subspan(c * rows_, rows_); }

 private:
  std::size_t rows_;
  std::vector<double> values_;
};

struct LeastSquares {
  std::vector<double> coefficients;  // one per column; 0 for a column that those before it already span
  double squares = 0;                // the sum of the squared residuals
};

// Minimises |X b - y|². By modified Gram-Schmidt with y as the last column, which is as accurate as Householder's method
// (Björck, "Solving linear least squares problems by Gram-Schmidt orthogonalization", 1967).
LeastSquares least_squares(const Columns& x, std::span<const double> y);

// Least squares with b >= 0, solved exactly: the best of the subsets of columns whose own solution is not negative. For at most
// 8 columns (InternalError), as there are 2^columns subsets.
LeastSquares nonnegative_least_squares(const Columns& x, std::span<const double> y);

// The diagonal of the matrix that projects onto the columns: the share of each observation's noise that the fit follows, 0 to
// 1.
std::vector<double> leverages(const Columns& x);

}  // namespace plait::study
