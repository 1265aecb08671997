#include "ops/embedding.h"

#include "ops/argument_check.h"
#include "ops/implementations.h"

namespace plait::ops {
namespace {

void check_rows(const ArgumentCheck& check, const View& tokens, const View& starts, std::int64_t sequence,
                std::int64_t first_token) {
  check.tensor("tokens", tokens, DType::i32, {tokens.elements()});
  check.that(sequence > 0 && tokens.elements() % sequence == 0, "sequence", "positive and a divisor of the number of tokens",
             std::to_string(sequence) + " for tokens " + describe(tokens));
  if (starts) check.tensor("starts", starts, DType::i32, {tokens.elements()});
  check.that(first_token >= 0, "first_token", "not negative", std::to_string(first_token));
}

}  // namespace

void embedding_forward(StreamRef stream, const EmbeddingForward& args) {
  const ArgumentCheck check("embedding_forward", stream);
  check_rows(check, args.tokens, args.starts, args.sequence, args.first_token);
  check.compute_tensor("tokens_table", args.tokens_table, 2);
  const DType dtype = args.tokens_table.dtype;
  const std::int64_t dim = args.tokens_table.shape[1];
  if (args.positions_table) {
    check.tensor("positions_table", args.positions_table, dtype, {args.positions_table.shape[0], dim});
    check.that(args.positions_table.shape[0] >= args.sequence, "positions_table", "of at least `sequence` rows",
               describe(args.positions_table) + " for sequence " + std::to_string(args.sequence));
  }
  check.tensor("y", args.y, dtype, {args.tokens.elements(), dim});
  return check.on_cuda() ? cuda::embedding_forward(stream, args) : cpu::embedding_forward(stream, args);
}

void embedding_backward(StreamRef stream, OpContext& context, const EmbeddingBackward& args) {
  const ArgumentCheck check("embedding_backward", stream, context);
  check_rows(check, args.tokens, args.starts, args.sequence, args.first_token);
  check.compute_tensor("dy", args.dy, 2);
  const DType dtype = args.dy.dtype;
  const std::int64_t dim = args.dy.shape[1];
  check.tensor("dy", args.dy, dtype, {args.tokens.elements(), dim});
  check.gradient("dtokens_table", args.dtokens_table, dtype, {args.dtokens_table.shape[0], dim});
  if (args.dpositions_table) {
    check.tensor("dpositions_table", args.dpositions_table, args.dtokens_table.dtype, {args.dpositions_table.shape[0], dim});
    check.that(args.dpositions_table.shape[0] >= args.sequence, "dpositions_table", "of at least `sequence` rows",
               describe(args.dpositions_table) + " for sequence " + std::to_string(args.sequence));
  }
  return check.on_cuda() ? cuda::embedding_backward(stream, context, args) : cpu::embedding_backward(stream, context, args);
}

}  // namespace plait::ops
