#include "ops/cross_entropy.h"

#include "ops/argument_check.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace plait::ops {

void cross_entropy(StreamRef stream, const CrossEntropy& args) {
  const ArgumentCheck check("cross_entropy", stream);
  check.compute_tensor("logits", args.logits, 2);
  const Shape per_row{args.logits.shape[0]};
  check.tensor("targets", args.targets, DType::i32, per_row);
  check.tensor("losses", args.losses, statistics_type(args.logits.dtype), per_row);
  check.that(args.vocab > 0 && args.vocab <= args.logits.shape[1], "vocab", "in [1, columns of logits]",
             std::to_string(args.vocab) + " for logits " + describe(args.logits));
  if constexpr (PLAIT_HAS_CUDA) {
    if (check.on_cuda()) return cuda::cross_entropy(stream, args);
  }
  cpu::cross_entropy(stream, args);
}

}  // namespace plait::ops
