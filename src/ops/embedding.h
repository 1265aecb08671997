// Token and (optionally) learned position embeddings.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "ops/op_context.h"

namespace plait::ops {

// y[batch * sequence, dim] = tokens_table[token - first_token] (+ positions_table[position]);  tokens[batch * sequence] are
// i32. tokens_table holds the rows of tokens [first_token, first_token + tokens_table.shape[0]), the whole vocabulary or one
// tensor-parallel rank's part of it; a token outside that part adds zero, so the sum over ranks is the embedding. Tokens are
// checked against the vocabulary where data enters, not here. positions_table[>= sequence, dim] is optional. starts (optional)
// and positions are those of ops/attention_shape.h.
struct EmbeddingForward {
  View tokens, starts, tokens_table, positions_table;
  View y;
  std::int64_t sequence = 0;
  std::int64_t first_token = 0;
};
void embedding_forward(StreamRef stream, const EmbeddingForward& args);

// dtokens_table[vocab, dim] and dpositions_table[>= sequence, dim] (optional) of gradient type G from dy[rows, dim] of type T.
// dtokens_table: accumulate_tokens = false overwrites the whole table (rows of unused tokens become zero); true adds. With tied
// embeddings the head's weight gradient is already there, so the caller adds. Tokens outside the table's part of the vocabulary
// (first_token, as above) add nothing to it.
// Sums have a fixed order: same bits on every run.
struct EmbeddingBackward {
  View tokens, starts, dy;
  View dtokens_table, dpositions_table;
  std::int64_t sequence = 0;
  std::int64_t first_token = 0;
  bool accumulate_tokens = false, accumulate_positions = false;
};
void embedding_backward(StreamRef stream, OpContext& context, const EmbeddingBackward& args);

}  // namespace plait::ops
