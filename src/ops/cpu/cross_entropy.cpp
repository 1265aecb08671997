#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/math.h"
#include "ops/cpu/types.h"

namespace plait::ops::cpu {
namespace {

template <typename T>
void cross_entropy_rows(const CrossEntropy& args) {
  using A = Arithmetic<T>;
  const std::int64_t rows = args.logits.shape[0], padded = args.logits.shape[1], vocab = args.vocab;
  const std::int32_t* targets = args.targets.as<std::int32_t>();
  A* losses = args.losses.as<A>();
  const A scale = args.scale;
  const auto row_scratch = std::make_unique_for_overwrite<A[]>(static_cast<std::size_t>(vocab));
  A* exponentials = row_scratch.get();
  for (std::int64_t row = 0; row < rows; ++row) {
    T* logits = args.logits.as<T>() + row * padded;
    const std::int64_t target = targets[row];
    if (target == -1) {
      losses[row] = 0;
      if (args.write_gradient) std::fill(logits, logits + padded, T(A(0)));
      continue;
    }
    require(target >= 0 && target < vocab, "cross_entropy: a target outside the vocabulary");
    const A most = largest<A>(vocab, [&](std::int64_t i) { return load(logits[i]); });
    for (std::int64_t i = 0; i < vocab; ++i) exponentials[i] = exponential(load(logits[i]) - most);
    const double total = ordered_sum<double>(vocab, [&](std::int64_t i) { return exponentials[i]; });
    losses[row] = static_cast<A>(std::log(total)) + most - load(logits[target]);
    if (!args.write_gradient) continue;
    const A factor = static_cast<A>(static_cast<double>(scale) / total);
    for (std::int64_t i = 0; i < vocab; ++i) logits[i] = store<T>(exponentials[i] * factor);
    logits[target] = store<T>(exponentials[target] * factor - scale);
    std::fill(logits + vocab, logits + padded, T(A(0)));
  }
}

}  // namespace

void cross_entropy(StreamRef stream, const CrossEntropy& args) {
  stream.enqueue_host(
      [args] { with_type(args.logits.dtype, [&]<typename T>(std::type_identity<T>) { cross_entropy_rows<T>(args); }); });
}

}  // namespace plait::ops::cpu
