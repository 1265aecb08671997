#include "model/tensor_parallel.h"

#include "core/error.h"
#include "ops/elementwise.h"

namespace plait::model {

TensorParallel::TensorParallel(const TensorSplit& split, comm::Communicator& group) : split_(split), group_(group) {
  require(group.size() == split.size && group.rank() == split.rank, "TensorParallel: the group is not the split's");
}

View TensorParallel::own_rows(View whole) const {
  if (!split_.sequence_parallel) return whole;
  const std::int64_t rows = whole.shape[0] / split_.size;
  return whole.rows(split_.rank * rows, rows);
}

void TensorParallel::gather(StreamRef stream, View whole) const {
  if (split_.sequence_parallel) group_.all_gather(stream, own_rows(whole), whole);
}

View TensorParallel::partial(View scratch, View out) const { return split_.sequence_parallel ? scratch : out; }

void TensorParallel::sum(StreamRef stream, View partial, View out) const {
  if (split_.sequence_parallel) {
    group_.reduce_scatter(stream, partial, out);
  } else {
    group_.all_reduce(stream, partial);
  }
}

void TensorParallel::row_linear(StreamRef stream, ops::OpContext& context, const RowLinear& args) const {
  const View product = partial(args.scratch, args.out);
  // What is added once to the sum rides in rank 0's product where ranks keep the same rows; the residual of other rows than the
  // product's own has to wait for the sum.
  const bool adds = !split_.sequence_parallel && split_.rank == 0;
  ops::linear_forward(stream, context,
                      {.x = args.x,
                       .w = args.w,
                       .bias = adds ? args.bias : View(),
                       .residual = adds ? args.residual : View(),
                       .y = product,
                       .pre_activation = {}});
  sum(stream, product, args.out);
  if (split_.sequence_parallel) {
    ops::add_bias_residual(stream, {.x = args.out, .bias = args.bias, .residual = args.residual, .y = args.out});
  }
}

void TensorParallel::cross_entropy(StreamRef stream, const CrossEntropy& args) const {
  const std::int64_t columns = args.logits.shape[1];
  if (split_.size == 1) {  // whole rows are here, and one pass over them is enough
    ops::cross_entropy(stream, {.logits = args.logits,
                                .targets = args.targets,
                                .losses = args.losses,
                                .vocab = args.vocab,
                                .scale = args.scale,
                                .write_gradient = args.write_gradient});
    return;
  }
  const std::int64_t first = first_token(columns);
  const View mine = args.statistics.rows(split_.rank, 1).reshaped({args.statistics.shape[1], args.statistics.shape[2]});
  ops::cross_entropy_statistics(
      stream,
      {.logits = args.logits, .targets = args.targets, .statistics = mine, .vocab = args.vocab - first, .first_token = first});
  group_.all_gather(stream, mine, args.statistics);
  ops::cross_entropy_finish(stream, {.logits = args.logits,
                                     .targets = args.targets,
                                     .statistics = args.statistics,
                                     .losses = args.losses,
                                     .vocab = args.vocab - first,
                                     .first_token = first,
                                     .scale = args.scale,
                                     .write_gradient = args.write_gradient});
}

}  // namespace plait::model
