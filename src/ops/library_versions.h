// The names and versions of the libraries that operations use.
#pragma once

#include <string>
#include <vector>

#include "core/device.h"

namespace plait::ops {

struct LibraryVersion {
  std::string name, version;  // "cuDNN", "9.10.2"
};

// The libraries called by operations on a device of this kind. Works without a device or a driver too.
std::vector<LibraryVersion> library_versions(DeviceKind kind);

namespace cuda {
std::vector<LibraryVersion> library_versions();
}

}  // namespace plait::ops
