// The libraries that operations use: their versions, and the threads of a matrix product on the host.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/device.h"

namespace plait::ops {

struct LibraryVersion {
  std::string name;                      // "cuDNN"
  std::function<std::string()> version;  // "9.10.2"; asking opens a library that no operation has used yet
};

// The libraries called by operations on a device of this kind. Works without a device or a driver too.
std::vector<LibraryVersion> library_versions(DeviceKind kind);

// Applies to the whole process. With 1, every product runs in its stream's own thread, which is right when the process has at
// least as many ranks as cores. The launcher calls it once, before any stream exists. InternalError for threads < 1.
void set_blas_threads(int threads);

}  // namespace plait::ops
