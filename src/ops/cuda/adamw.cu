#include "ops/adamw_table.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/pack.cuh"
#include "ops/implementations.h"

namespace plait::ops::cuda {
namespace {

constexpr int threads = 256;
constexpr int width = 4;  // one 16-byte access of the f32 state
constexpr int iterations = static_cast<int>(adamw_piece_elements) / (threads * width);
static_assert(iterations * threads * width == adamw_piece_elements);

// As the kernel computes with them.
struct Coefficients {
  __device__ explicit Coefficients(const UpdateCoefficients& c)
      : lr(c.lr),
        beta1(c.beta1),
        beta2(c.beta2),
        epsilon(c.epsilon),
        weight_decay(c.weight_decay),
        correction1(static_cast<float>(c.correction1)),
        correction2(static_cast<float>(c.correction2)) {}
  float lr, beta1, beta2, epsilon, weight_decay, correction1, correction2;
};

template <typename T, typename G>
struct Buffers {
  const G* gradients;
  float *master, *m, *v;
  T* weights;
};

__global__ void norm_to_clip_kernel(const float* sum_of_squares, const float* sum_of_losses, const float* ignored,
                                    double targets, const UpdateCoefficients* update, OptimizerState* state) {
  const UpdateCoefficients coefficients = *update;  // over the bus, once
  const float clip = coefficients.clip;
  const double counted = targets - static_cast<double>(*ignored);
  const float factor = counted > 0.0 ? static_cast<float>(targets / counted) : 0.0f;
  const float norm = sqrtf(*sum_of_squares) * factor, loss = *sum_of_losses * factor;
  state->grad_norm = norm;
  state->gradient_factor = clip > 0.0f && norm > clip ? clip / norm * factor : factor;
  if (!isfinite(norm) || !isfinite(loss)) state->halted = 1.0f;
  state->loss = loss;
  state->ignored = *ignored;
  state->update = coefficients;
}

__device__ inline void update(const Coefficients& c, float decay, float g, float& m, float& v, float& master) {
  m = c.beta1 * m + (1.0f - c.beta1) * g;
  v = c.beta2 * v + (1.0f - c.beta2) * g * g;
  const float direction = m * c.correction1 / (sqrtf(v * c.correction2) + c.epsilon);
  master -= c.lr * (direction + decay * master);
}

// One block per piece. All loads of a thread are issued before the first use.
template <typename T, typename G>
__global__ void __launch_bounds__(threads)
    adamw_kernel(const AdamWPiece* table, Buffers<T, G> buffers, const OptimizerState* state) {
  const float gradient_factor = state->gradient_factor;
  if (state->halted != 0.0f || gradient_factor == 0.0f) return;
  const Coefficients c(state->update);
  const AdamWPiece piece = table[blockIdx.x];
  const float decay = piece.decay ? c.weight_decay : 0.0f;
  const G* gradients = buffers.gradients + piece.gradient_offset;
  T* weights = buffers.weights + piece.offset;
  float* master = buffers.master + piece.state_offset;
  float* m = buffers.m + piece.state_offset;
  float* v = buffers.v + piece.state_offset;

  const bool aligned =
      ((reinterpret_cast<std::uintptr_t>(gradients) | reinterpret_cast<std::uintptr_t>(weights) |
        reinterpret_cast<std::uintptr_t>(master) | reinterpret_cast<std::uintptr_t>(m) | reinterpret_cast<std::uintptr_t>(v)) %
       16) == 0;
  int singles = 0;  // first element that is handled singly
  if (aligned) {
    singles = piece.count / width * width;
    Pack<G, width> g_packs[iterations];
    Pack<float, width> m_packs[iterations], v_packs[iterations], master_packs[iterations];
#pragma unroll
    for (int k = 0; k < iterations; ++k) {
      const int i = (k * threads + static_cast<int>(threadIdx.x)) * width;
      if (i < singles) {
        g_packs[k] = load_pack<width>(gradients + i);
        m_packs[k] = load_pack<width>(m + i);
        v_packs[k] = load_pack<width>(v + i);
        master_packs[k] = load_pack<width>(master + i);
      }
    }
#pragma unroll
    for (int k = 0; k < iterations; ++k) {
      const int i = (k * threads + static_cast<int>(threadIdx.x)) * width;
      if (i < singles) {
#pragma unroll
        for (int j = 0; j < width; ++j) {
          update(c, decay, to_float(g_packs[k].values[j]) * gradient_factor, m_packs[k].values[j], v_packs[k].values[j],
                 master_packs[k].values[j]);
        }
        store_pack(m + i, m_packs[k]);
        store_pack(v + i, v_packs[k]);
        store_pack(master + i, master_packs[k]);
        store<width>(weights + i, master_packs[k].values);
      }
    }
  }
  for (int i = singles + static_cast<int>(threadIdx.x); i < piece.count; i += threads) {
    float m_value = m[i], v_value = v[i], master_value = master[i];
    update(c, decay, to_float(gradients[i]) * gradient_factor, m_value, v_value, master_value);
    m[i] = m_value;
    v[i] = v_value;
    master[i] = master_value;
    weights[i] = from_float<T>(master_value);
  }
}

}  // namespace

void norm_to_clip(StreamRef stream, const NormToClip& args) {
  norm_to_clip_kernel<<<1, 1, 0, native(stream)>>>(device_pointer<float>(args.sum_of_squares), device_pointer<float>(args.loss),
                                                   device_pointer<float>(args.ignored), static_cast<double>(args.targets),
                                                   args.update, device_pointer<OptimizerState>(args.optimizer_state));
  check_launch();
}

void adamw(StreamRef stream, const AdamW& args) {
  const std::int64_t pieces = args.table.elements() / static_cast<std::int64_t>(sizeof(AdamWPiece));
  if (pieces == 0) return;
  with_type(args.weights.dtype, [&](auto t) {
    with_type(args.gradients.dtype, [&](auto g) {
      using T = decltype(t);
      using G = decltype(g);
      const Buffers<T, G> buffers{device_pointer<G>(args.gradients), device_pointer<float>(args.master),
                                  device_pointer<float>(args.m), device_pointer<float>(args.v),
                                  device_pointer<T>(args.weights)};
      adamw_kernel<T, G><<<grid_size(pieces), threads, 0, native(stream)>>>(
          device_pointer<AdamWPiece>(args.table), buffers, device_pointer<OptimizerState>(args.optimizer_state));
      check_launch();
    });
  });
}

}  // namespace plait::ops::cuda
