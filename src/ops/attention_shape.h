// The sizes of a multi-head attention.
#pragma once

#include <cstdint>

namespace plait::ops {

struct AttentionShape {
  std::int64_t batch = 0, sequence = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
};

}  // namespace plait::ops
