// The sizes of a multi-head attention, and the keys that each row attends to.
#pragma once

#include <cstdint>

#include "core/choices.h"

namespace plait::ops {

// Row i of a sequence sees the keys max(starts[i], i - window + 1) .. i.
//
// starts: i32 [batch * sequence]. starts[i] is the index within the sequence at which token i's document begins, so 0 <=
// starts[i] <= i, ascending within a sequence. It is given to an operation exactly where documents are separate; without it
// every sequence is one document. The position of token i is i - starts[i].
struct AttentionShape {
  std::int64_t batch = 0, sequence = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t window = 0;  // 0: none
  Documents documents = Documents::joined;
};

// Limits of the CUDA kernels in fp32: the widest head, and the most sequences and the most heads.
inline constexpr std::int64_t most_f32_head_dim = 256, most_f32_heads = 65535;

}  // namespace plait::ops
