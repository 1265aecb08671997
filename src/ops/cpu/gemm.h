// OpenBLAS matrix products, row-major, for float and double.
#pragma once

#include <cblas.h>

#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/error.h"

namespace plait::ops::cpu {

enum class Transpose { no, yes };

// An operand's memory, the distance between its rows in elements, and whether the product reads it transposed.
template <typename A>
struct MatrixOperand {
  const A* data;
  std::int64_t row_stride;
  Transpose transpose = Transpose::no;
};

// c[m, n] = alpha * a[m, k] · b[k, n] + beta * c. With beta = 0, c is not read.
template <typename A>
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, A alpha, MatrixOperand<A> a, MatrixOperand<A> b, A beta, A* c,
          std::int64_t c_row_stride) {
  const auto narrow = [](std::int64_t size) {
    require(size <= std::numeric_limits<int>::max(), "gemm: a dim does not fit BLAS' 32-bit integers");
    return static_cast<int>(size);
  };
  const auto flag = [](Transpose t) { return t == Transpose::yes ? CblasTrans : CblasNoTrans; };
  if constexpr (std::is_same_v<A, float>) {
    cblas_sgemm(CblasRowMajor, flag(a.transpose), flag(b.transpose), narrow(m), narrow(n), narrow(k), alpha, a.data,
                narrow(a.row_stride), b.data, narrow(b.row_stride), beta, c, narrow(c_row_stride));
  } else {
    static_assert(std::is_same_v<A, double>);
    cblas_dgemm(CblasRowMajor, flag(a.transpose), flag(b.transpose), narrow(m), narrow(n), narrow(k), alpha, a.data,
                narrow(a.row_stride), b.data, narrow(b.row_stride), beta, c, narrow(c_row_stride));
  }
}

}  // namespace plait::ops::cpu
