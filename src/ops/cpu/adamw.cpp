#include <cmath>
#include <span>

#include "ops/adamw_table.h"
#include "ops/cpu/types.h"
#include "ops/implementations.h"

namespace plait::ops::cpu {
namespace {

template <typename T, typename G>
void update(const AdamW& args, const OptimizerState& state) {
  using M = Statistic<T>;
  const G* gradients = args.gradients.as<G>();
  M* master = args.master.as<M>();
  M* first = args.m.as<M>();
  M* second = args.v.as<M>();
  T* weights = args.weights.as<T>();

  const UpdateCoefficients& c = state.update;
  const M beta1 = c.beta1, beta2 = c.beta2, lr = c.lr, epsilon = c.epsilon, scale = state.gradient_factor;
  const M correction1 = static_cast<M>(c.correction1), correction2 = static_cast<M>(c.correction2);

  const std::span pieces(reinterpret_cast<const AdamWPiece*>(args.table.as<std::uint8_t>()),
                         static_cast<std::size_t>(args.table.elements()) / sizeof(AdamWPiece));
  for (const AdamWPiece& piece : pieces) {
    require(piece.offset + piece.count <= args.weights.elements() &&
                piece.gradient_offset + piece.count <= args.gradients.elements() &&
                piece.state_offset + piece.count <= args.master.elements(),
            "adamw: argument 'table' names elements outside the weights, the gradients or the optimizer state");
    const M decay = piece.decay ? M(c.weight_decay) : M(0);
    for (std::int32_t k = 0; k < piece.count; ++k) {
      const std::int64_t i = piece.offset + k, s = piece.state_offset + k;
      const M g = static_cast<M>(load(gradients[piece.gradient_offset + k])) * scale;
      first[s] = beta1 * first[s] + (1 - beta1) * g;
      second[s] = beta2 * second[s] + (1 - beta2) * g * g;
      const M direction = first[s] * correction1 / (std::sqrt(second[s] * correction2) + epsilon);
      master[s] -= lr * (direction + decay * master[s]);
      weights[i] = store<T>(static_cast<Arithmetic<T>>(master[s]));
    }
  }
}

}  // namespace

void norm_to_clip(StreamRef stream, const NormToClip& args) {
  stream.enqueue_host([args] {
    const auto first = [](const View& view) {
      return view.dtype == DType::f64 ? *view.as<double>() : static_cast<double>(*view.as<float>());
    };
    auto& state = *static_cast<OptimizerState*>(args.optimizer_state.data);
    const auto targets = static_cast<double>(args.targets), clip = static_cast<double>(args.update->clip);
    const double ignored = first(args.ignored), counted = targets - ignored;
    const double factor = counted > 0 ? targets / counted : 0;
    const double norm = std::sqrt(first(args.sum_of_squares)) * factor, loss = first(args.loss) * factor;
    state.grad_norm = static_cast<float>(norm);
    state.gradient_factor = static_cast<float>(clip > 0 && norm > clip ? clip / norm * factor : factor);
    if (!std::isfinite(norm) || !std::isfinite(loss)) state.halted = 1.0f;
    state.loss = static_cast<float>(loss);
    state.ignored = static_cast<float>(ignored);
    state.update = *args.update;
  });
}

void adamw(StreamRef stream, const AdamW& args) {
  stream.enqueue_host([args] {
    const auto& state = *static_cast<const OptimizerState*>(args.optimizer_state.data);
    if (state.halted != 0.0f || state.gradient_factor == 0.0f) return;
    with_type(args.weights.dtype, [&]<typename T>(std::type_identity<T>) {
      with_gradient_type<T>(args.gradients.dtype, [&]<typename G>(std::type_identity<G>) { update<T, G>(args, state); });
    });
  });
}

}  // namespace plait::ops::cpu
