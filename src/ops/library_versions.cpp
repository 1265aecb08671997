#include "ops/library_versions.h"

#include <cblas.h>

#include <sstream>

namespace plait::ops {

std::vector<LibraryVersion> library_versions(DeviceKind kind) {
  if constexpr (PLAIT_HAS_CUDA) {
    if (kind == DeviceKind::cuda) return cuda::library_versions();
  }
  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...": the words after the number describe this processor.
  std::istringstream words(openblas_get_config());
  LibraryVersion version;
  words >> version.name >> version.version;
  return {version};
}

}  // namespace plait::ops
