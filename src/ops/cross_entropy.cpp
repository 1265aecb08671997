#include "ops/cross_entropy.h"

#include <algorithm>

#include "ops/argument_check.h"
#include "ops/implementations.h"

namespace plait::ops {
namespace {

// Checks the arguments that both halves of a split cross-entropy share. Returns the number of columns that are not padding.
std::int64_t check_part(const ArgumentCheck& check, const View& logits, const View& targets, std::int64_t vocab,
                        std::int64_t first_token) {
  check.compute_tensor("logits", logits, 2);
  check.tensor("targets", targets, DType::i32, {logits.shape[0]});
  check.that(first_token >= 0, "first_token", "not negative", std::to_string(first_token));
  return std::clamp<std::int64_t>(vocab, 0, logits.shape[1]);
}

}  // namespace

void cross_entropy(StreamRef stream, const CrossEntropy& args) {
  const ArgumentCheck check("cross_entropy", stream);
  check.compute_tensor("logits", args.logits, 2);
  const Shape per_row{args.logits.shape[0]};
  check.tensor("targets", args.targets, DType::i32, per_row);
  check.tensor("losses", args.losses, statistics_type(args.logits.dtype), per_row);
  check.that(args.vocab > 0 && args.vocab <= args.logits.shape[1], "vocab", "in [1, columns of logits]",
             std::to_string(args.vocab) + " for logits " + describe(args.logits));
  return check.on_cuda() ? cuda::cross_entropy(stream, args) : cpu::cross_entropy(stream, args);
}

void cross_entropy_statistics(StreamRef stream, const CrossEntropyStatistics& given) {
  const ArgumentCheck check("cross_entropy_statistics", stream);
  CrossEntropyStatistics args = given;
  args.vocab = check_part(check, args.logits, args.targets, args.vocab, args.first_token);
  check.tensor("statistics", args.statistics, statistics_type(args.logits.dtype), {args.logits.shape[0], 3});
  return check.on_cuda() ? cuda::cross_entropy_statistics(stream, args) : cpu::cross_entropy_statistics(stream, args);
}

void cross_entropy_finish(StreamRef stream, const CrossEntropyFinish& given) {
  const ArgumentCheck check("cross_entropy_finish", stream);
  CrossEntropyFinish args = given;
  args.vocab = check_part(check, args.logits, args.targets, args.vocab, args.first_token);
  const DType number = statistics_type(args.logits.dtype);
  const std::int64_t rows = args.logits.shape[0], ranks = args.statistics.shape[0];
  check.tensor("statistics", args.statistics, number, {ranks, rows, 3});
  check.that(ranks > 0, "statistics", "of at least one rank", describe(args.statistics));
  check.tensor("losses", args.losses, number, {rows});
  return check.on_cuda() ? cuda::cross_entropy_finish(stream, args) : cpu::cross_entropy_finish(stream, args);
}

}  // namespace plait::ops
