#include "core/host_name.h"

#include <unistd.h>

#include <array>

namespace plait {

std::string host_name() {
  std::array<char, 256> name{};  // a truncated name may lack the final zero
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace plait
