// What a segment does together with the other ranks of its tensor-parallel group (Shoeybi et al. 2019; with sequence
// parallelism, Korthikanti et al. 2022).
//
// A column-parallel product reads whole rows and computes this rank's columns; the row-parallel product after it yields a
// partial sum, which a collective completes. The residual stream between them is the same on all ranks, and the collective an
// all-reduce; or, under sequence parallelism, it is split by rows, and the collective a reduce-scatter, with an all-gather
// before the next column-parallel product. A group of one goes through the same calls; its collectives do nothing.
#pragma once

#include "comm/communicator.h"
#include "core/stream.h"
#include "model/activations.h"
#include "ops/cross_entropy.h"
#include "ops/linear.h"
#include "ops/op_context.h"

namespace plait::model {

class TensorParallel {
 public:
  // `group`: the tensor-parallel group; must outlive this.
  TensorParallel(const TensorSplit& split, comm::Communicator& group);

  const TensorSplit& split() const { return split_; }

  // This rank's rows of a tensor [rows, ...] of the residual stream.
  View own_rows(View whole) const;
  // Fills in the other ranks' rows of `whole`, which already holds this rank's own.
  void gather(StreamRef stream, View whole) const;

  // Where to put a partial sum [rows, hidden], if the total's own rows are to end up in `out`: `out` itself, unless a rank
  // keeps only some of the rows.
  View partial(View scratch, View out) const;
  // Sums `partial` over ranks and leaves this rank's rows of the sum in `out`. `partial` is as returned above, or `out` is its
  // own rows.
  void sum(StreamRef stream, View partial, View out) const;

  // out = own rows of (Σ over ranks of x · wᵀ) + bias + residual: the row-parallel product back into the residual stream.
  struct RowLinear {
    View x, w, bias, residual;
    View scratch;  // SegmentActivations::partial
    View out;
  };
  void row_linear(StreamRef stream, ops::OpContext& context, const RowLinear& args) const;

  // Cross-entropy over a vocabulary of which this rank's columns are logits[rows, padded_vocab of the rank]. No rank holds
  // whole rows of logits.
  struct CrossEntropy {
    View logits, targets, statistics, losses;
    std::int64_t vocab = 0;  // of the model
    float scale = 1.0f;
    bool write_gradient = true;
  };
  void cross_entropy(StreamRef stream, const CrossEntropy& args) const;

  // The first token of this rank's part of a vocabulary, whose part has `rows` rows.
  std::int64_t first_token(std::int64_t rows) const { return split_.rank * rows; }

 private:
  TensorSplit split_;
  comm::Communicator& group_;
};

}  // namespace plait::model
