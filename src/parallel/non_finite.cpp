// Finding the first tensor that is not finite.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "parallel/interpreter.h"

namespace plait::parallel {
namespace {

template <typename T>
bool all_finite(const T* values, std::int64_t count) {
  return std::all_of(values, values + count, [](T v) { return std::isfinite(static_cast<float>(v)); });
}

}  // namespace

std::vector<model::NamedView> Interpreter::written_by(const Instruction& i) {
  if (i.block < 0) return {};
  const auto block = static_cast<std::size_t>(i.block);
  const auto slot = static_cast<std::size_t>(i.activation_slot);
  std::vector<model::NamedView> views;
  switch (i.kind) {
    case InstructionKind::forward:
      return model::named(activations_[block][slot]);
    case InstructionKind::backward_input: {
      if (i.block != plan_.model.shape.head_block()) {
        for (model::NamedView& v : model::named(block_scratch_)) views.push_back({"gradient of " + v.name, v.view});
      }
      views.push_back({"gradient of the block's input", residual_gradients_[static_cast<std::size_t>(i.gradient_out)]});
      return views;
    }
    case InstructionKind::backward_weight:
      for (std::size_t p = 0; p < plan_.parameters.size(); ++p) {
        if (plan_.parameters[p].block == i.block) {
          views.push_back({"gradient of " + plan_.parameters[p].name, slice(gradients_, plan_.flat.parameter(p))});
        }
      }
      return views;
    default:
      return {};
  }
}

bool Interpreter::synchronize_is_finite(View view) {
  const StreamRef s = compute_stream();
  const std::size_t chunk = pinned_.bytes() / 2 / size_of(view.dtype);
  for (std::size_t done = 0; done < static_cast<std::size_t>(view.elements()); done += chunk) {
    const std::size_t count = std::min(chunk, static_cast<std::size_t>(view.elements()) - done);
    s.copy(pinned_.data(), static_cast<char*>(view.data) + done * size_of(view.dtype), count * size_of(view.dtype));
    s.synchronize();
    const auto n = static_cast<std::int64_t>(count);
    bool finite = true;
    switch (view.dtype) {
      case DType::f32: finite = all_finite(static_cast<const float*>(pinned_.data()), n); break;
      case DType::f64: finite = all_finite(static_cast<const double*>(pinned_.data()), n); break;
      case DType::bf16: finite = all_finite(static_cast<const BFloat16*>(pinned_.data()), n); break;
      default: break;
    }
    if (!finite) return false;
  }
  return true;
}

std::optional<NonFinite> Interpreter::synchronize_find_non_finite(BatchSource& batches) {
  synchronize();
  for (std::size_t p = 0; p < plan_.parameters.size(); ++p) {
    if (!synchronize_is_finite(slice(weights_, plan_.flat.parameter(p)))) {
      return NonFinite{-1, "weights: " + plan_.parameters[p].name};
    }
  }
  for (std::size_t n = 0; n < plan_.train.instructions.size(); ++n) {
    const Instruction& instruction = plan_.train.instructions[n];
    if (instruction.micro_batch < 0) continue;  // communication and update
    issue(instruction, batches, {}, true, instruction.accumulate);
    synchronize();
    for (const model::NamedView& written : written_by(instruction)) {
      if (!synchronize_is_finite(written.view)) {
        return NonFinite{static_cast<int>(n), to_string(instruction) + ": " + written.name};
      }
    }
  }
  return std::nullopt;
}

}  // namespace plait::parallel
