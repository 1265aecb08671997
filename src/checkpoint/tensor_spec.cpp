#include "checkpoint/tensor_spec.h"

#include "core/error.h"

namespace plait::checkpoint {

std::int64_t TensorSpec::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t dim : shape) {
    require(dim >= 0 && !__builtin_mul_overflow(count, dim, &count), "tensor " + name + ": impossible shape");
  }
  return count;
}

std::int64_t TensorSpec::columns() const {
  const std::int64_t count = elements();
  return count == 0 ? 0 : count / rows();
}

}  // namespace plait::checkpoint
