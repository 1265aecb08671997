#include <cmath>
#include <optional>
#include <span>

#include "ops/adamw_table.h"
#include "ops/cpu/types.h"
#include "ops/implementations.h"
#include "ops/moment_rounding.h"

namespace plait::ops::cpu {
namespace {

// The random numbers of the elements of a piece, in order.
class RoundingWords {
 public:
  RoundingWords(const ElementNumbers& numbers, std::int64_t update) : numbers_(numbers), update_(update) {}

  std::uint32_t operator[](std::int64_t element) {
    const std::int64_t number = numbers_.of(element);
    if (number / 4 != quad_) {
      quad_ = number / 4;
      words_ = rounding_words(numbers_.key, update_, quad_);
    }
    return words_[static_cast<std::size_t>(number % 4)];
  }

 private:
  const ElementNumbers& numbers_;
  std::int64_t update_;
  std::int64_t quad_ = -1;
  PhiloxBlock words_ = {};
};

// S: type of the moments, M or bf16.
template <typename T, typename G, typename S>
void update(const AdamW& args, const OptimizerState& state) {
  using M = Statistic<T>;
  const G* gradients = args.gradients.as<G>();
  M* master = args.master.as<M>();
  S* first = args.m.as<S>();
  S* second = args.v.as<S>();
  T* weights = args.weights.as<T>();

  const UpdateCoefficients& c = state.update;
  const M beta1 = c.beta1, beta2 = c.beta2, lr = c.lr, epsilon = c.epsilon, scale = state.gradient_factor;
  const M correction1 = static_cast<M>(c.correction1), correction2 = static_cast<M>(c.correction2);

  const std::span pieces(reinterpret_cast<const AdamWPiece*>(args.table.as<std::uint8_t>()),
                         static_cast<std::size_t>(args.table.elements() / bytes_of_piece(dtype_of<S>)));
  const auto* const numbers = reinterpret_cast<const ElementNumbers*>(pieces.data() + pieces.size());
  for (const AdamWPiece& piece : pieces) {
    require(piece.offset + piece.count <= args.weights.elements() &&
                piece.gradient_offset + piece.count <= args.gradients.elements() &&
                piece.state_offset + piece.count <= args.master.elements(),
            "adamw: argument 'table' names elements outside the weights, the gradients or the optimizer state");
    const M decay = piece.decay ? M(c.weight_decay) : M(0);
    std::optional<RoundingWords> words;
    if constexpr (std::is_same_v<S, BFloat16>) words.emplace(numbers[&piece - pieces.data()], c.update);
    for (std::int32_t k = 0; k < piece.count; ++k) {
      const std::int64_t i = piece.offset + k, s = piece.state_offset + k;
      const M g = static_cast<M>(load(gradients[piece.gradient_offset + k])) * scale;
      const M m = beta1 * static_cast<M>(load(first[s])) + (1 - beta1) * g;
      const M v = beta2 * static_cast<M>(load(second[s])) + (1 - beta2) * g * g;
      if constexpr (std::is_same_v<S, BFloat16>) {
        const std::uint32_t random = (*words)[k];
        first[s] = rounded_by(m, random & 0xffffu);
        second[s] = rounded_by(v, random >> 16);
      } else {
        first[s] = m;
        second[s] = v;
      }
      const M direction = m * correction1 / (std::sqrt(v * correction2) + epsilon);
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
      with_gradient_type<T>(args.gradients.dtype, [&]<typename G>(std::type_identity<G>) {
        if constexpr (!std::is_same_v<T, double>) {
          if (args.m.dtype == DType::bf16) return update<T, G, BFloat16>(args, state);
        }
        update<T, G, Statistic<T>>(args, state);
      });
    });
  });
}

}  // namespace plait::ops::cpu
