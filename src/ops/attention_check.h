// Validation shared by attention and rope. Private to ops.
#pragma once

#include "ops/argument_check.h"
#include "ops/attention.h"

namespace plait::ops {

void check_attention_shape(const ArgumentCheck& check, const AttentionShape& shape);
// `starts` is required where documents are separate and must be empty otherwise.
void check_starts(const ArgumentCheck& check, const AttentionShape& shape, const View& starts);
Shape packed_qkv_shape(const AttentionShape& shape);  // [batch * sequence, (heads + 2 * kv_heads) * head_dim]

}  // namespace plait::ops
