#include "ops/blas_threads.h"

#include <cblas.h>

#include "core/error.h"

namespace plait::ops {

void set_blas_threads(int threads) {
  require(threads >= 1, "set_blas_threads: argument 'threads' must be at least 1, got " + std::to_string(threads));
  openblas_set_num_threads(threads);
}

}  // namespace plait::ops
