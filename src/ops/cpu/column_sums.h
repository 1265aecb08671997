// Sums over the rows of a matrix, one per column: bias and norm parameter gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/cpu/types.h"

namespace plait::ops::cpu {

// Adds rows to one sum per column. Every 32 rows the sums in A are folded into double: as fast as float, nearly as exact as
// double, in a fixed order.
template <typename A>
class ColumnSums {
 public:
  explicit ColumnSums(std::int64_t columns) : recent_(static_cast<std::size_t>(columns)), total_(recent_.size()) {}

  // Adds term(column) to every column.
  template <typename Term>
  void add_row(Term term) {
    A* sums = recent_.data();
    for (std::int64_t i = 0, n = columns(); i < n; ++i) sums[i] += term(i);
    if (++rows_ % 32 == 0) fold();
  }

  // gradient[column] (+)= sum.
  template <typename G>
  void finish(G* gradient, bool accumulate) {
    fold();
    for (std::int64_t i = 0, n = columns(); i < n; ++i) {
      const double present = accumulate ? static_cast<double>(load(gradient[i])) : 0.0;
      gradient[i] = store<G>(static_cast<Arithmetic<G>>(present + total_[static_cast<std::size_t>(i)]));
    }
  }

 private:
  std::int64_t columns() const { return static_cast<std::int64_t>(recent_.size()); }
  void fold() {
    for (std::size_t i = 0; i < recent_.size(); ++i) {
      total_[i] += static_cast<double>(recent_[i]);
      recent_[i] = 0;
    }
  }

  std::vector<A> recent_;
  std::vector<double> total_;
  std::int64_t rows_ = 0;
};

// gradient[columns] (+)= the sums of x[rows, columns] over its rows.
template <typename T, typename G>
void sum_rows(const View& x, G* gradient, bool accumulate) {
  const std::int64_t rows = x.shape[0], columns = x.shape[1];
  ColumnSums<Arithmetic<T>> sums(columns);
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* from = x.as<T>() + row * columns;
    sums.add_row([from](std::int64_t i) { return load(from[i]); });
  }
  sums.finish(gradient, accumulate);
}

}  // namespace plait::ops::cpu
