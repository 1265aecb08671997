// Stands in for a header of Gloo's that Debian's libgloo-dev leaves out, although headers it ships include it: context.h and
// pair.h of gloo/transport/tcp. Used only where it is missing (src/CMakeLists.txt).
//
// Those headers use these templates as members and parameters, so only their layout in the library matters: one weak pointer.
#pragma once

#include <memory>

namespace gloo {

template <typename T>
class NonOwningPtr;

template <typename T>
class WeakNonOwningPtr final {
 private:
  std::weak_ptr<T> pointer_;
};

}  // namespace gloo
