// Stands in for a header of Gloo's that Debian's libgloo-dev leaves out, although headers that it has include it: context.h and
// pair.h of gloo/transport/tcp. Used only where it is missing (src/CMakeLists.txt).
//
// Those name these templates as members and parameters, so what counts here is what they are made of in the library: one weak
// pointer.
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
