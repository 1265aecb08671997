#include "ops/libraries.h"

#include <cblas.h>

#include <sstream>

#include "core/error.h"
#include "ops/implementations.h"

namespace plait::ops {

std::vector<LibraryVersion> cpu::library_versions() {
  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...": the words after the number describe this processor.
  std::istringstream words(openblas_get_config());
  std::string name, version;
  words >> name >> version;
  return {{name, [version] { return version; }}};
}

std::vector<LibraryVersion> library_versions(DeviceKind kind) {
  return kind == DeviceKind::cuda ? cuda::library_versions() : cpu::library_versions();
}

void set_blas_threads(int threads) {
  require(threads >= 1, "set_blas_threads: argument 'threads' must be at least 1, got " + std::to_string(threads));
  openblas_set_num_threads(threads);
}

}  // namespace plait::ops
