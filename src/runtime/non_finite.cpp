#include "runtime/non_finite.h"

namespace plait::runtime {

std::optional<NonFinite> synchronize_find_non_finite(Interpreter& interpreter, BatchSource& batches) {
  interpreter.synchronize();
  const parallel::RankPlan& plan = interpreter.plan();
  TensorReader reader = interpreter.reader();
  std::optional<NonFinite> found;
  for (std::size_t p = 0; p < plan.parameters.size() && !found; ++p) {
    const parallel::Range range = plan.flat.parameter(p);
    if (!reader.synchronize_is_finite(interpreter.weights().rows(range.first, range.count))) {
      found = NonFinite{-1, "weights: " + plan.parameters[p].name};
    }
  }
  interpreter.synchronize_step(batches, [&](const parallel::Instruction& i, const std::vector<WrittenTensor>& written) {
    for (const WrittenTensor& tensor : written) {
      if (!found && !reader.synchronize_is_finite(tensor.view)) {
        found = NonFinite{execution_order(i, plan.sizes.shape.segments()), to_string(i) + ": " + tensor.name};
      }
    }
  });
  return found;
}

}  // namespace plait::runtime
