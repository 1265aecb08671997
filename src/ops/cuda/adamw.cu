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

// UpdateCoefficients in the form the kernel computes with.
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

template <typename T, typename G, typename M>
struct Buffers {
  const G* gradients;
  float* master;
  M *m, *v;
  T* weights;
};

__global__ void norm_to_clip_kernel(const float* sum_of_squares, const float* sum_of_losses, const float* ignored,
                                    double targets, const UpdateCoefficients* update, OptimizerState* state) {
  await_previous_kernel();
  let_next_kernel_begin();
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

// Each operation is spelled out: left to itself the compiler fuses different products in different places, and an element's
// bits would depend on the type of the moments and on its place in a piece.
__device__ inline void update(const Coefficients& c, float decay, float g, float& m, float& v, float& master) {
  m = fmaf(c.beta1, m, (1.0f - c.beta1) * g);
  v = fmaf(c.beta2, v, (1.0f - c.beta2) * g * g);
  const float direction = m * c.correction1 / (sqrtf(v * c.correction2) + c.epsilon);
  master = fmaf(-c.lr, fmaf(decay, master, direction), master);
}

// The device version of rounding_words() in ops/moment_rounding.h, for elements 4 `quad` to 4 `quad` + 3.
__device__ inline uint4 rounding_words(std::uint64_t key, std::int64_t update, std::int64_t quad) {
  auto low = [](std::uint64_t n) { return static_cast<unsigned>(n); };
  auto high = [](std::uint64_t n) { return static_cast<unsigned>(n >> 32); };
  uint4 counter{low(quad), high(quad), low(update), high(update)};
  uint2 k{low(key), high(key)};
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter.x, p1 = std::uint64_t{0xCD9E8D57u} * counter.z;
    counter = {high(p1) ^ counter.y ^ k.x, low(p1), high(p0) ^ counter.w ^ k.y, low(p0)};
    k.x += 0x9E3779B9u;
    k.y += 0xBB67AE85u;
  }
  return counter;
}

// The random numbers of the elements of a piece.
class RoundingWords {
 public:
  __device__ RoundingWords(const ElementNumbers& numbers, std::int64_t update) : numbers_(numbers), update_(update) {}

  __device__ unsigned of(int element) const {
    const std::int64_t number = number_of(element);
    const uint4 words = rounding_words(numbers_.key, update_, number / 4);
    const int lane = static_cast<int>(number % 4);
    return lane == 0 ? words.x : lane == 1 ? words.y : lane == 2 ? words.z : words.w;
  }

  // The words of elements `element` to `element` + 3; usually one call of Philox covers all four.
  __device__ void of(int element, unsigned (&words)[4]) const {
    const std::int64_t number = number_of(element);
    if (number % 4 == 0 && number_of(element + 3) == number + 3) {
      const uint4 all = rounding_words(numbers_.key, update_, number / 4);
      words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) words[j] = of(element + j);
    }
  }

 private:
  // ElementNumbers::of without its 64-bit division.
  __device__ std::int64_t number_of(int element) const {
    std::int64_t number = numbers_.first + element;
    if (numbers_.skip != 0) {  // the same in the whole block
      const unsigned rows =
          (static_cast<unsigned>(numbers_.column) + static_cast<unsigned>(element)) / static_cast<unsigned>(numbers_.columns);
      number += static_cast<std::int64_t>(numbers_.skip) * rows;
    }
    return number;
  }

  const ElementNumbers numbers_;
  const std::int64_t update_;
};

// The device version of rounded_by() in ops/moment_rounding.h.
__device__ inline __nv_bfloat16 rounded_by(float value, unsigned random) {
  constexpr unsigned infinity = 0x7f800000u, largest = 0x7f7fffffu;
  const unsigned all = __float_as_uint(value), magnitude = all & 0x7fffffffu;
  if (magnitude >= infinity) return __float2bfloat16_rn(value);
  const unsigned bits = (min(magnitude + random, largest) | (all & 0x80000000u)) >> 16;
  return __ushort_as_bfloat16(static_cast<unsigned short>(bits));
}

// Moments m and v in the storage type M; `word`: the element's random number.
__device__ inline void keep(float m, float v, unsigned word, __nv_bfloat16& kept_m, __nv_bfloat16& kept_v) {
  kept_m = rounded_by(m, word & 0xffffu);
  kept_v = rounded_by(v, word >> 16);
}
__device__ inline void keep(float m, float v, unsigned, float& kept_m, float& kept_v) {
  kept_m = m;
  kept_v = v;
}

template <typename T>
__device__ bool takes_packs(const T* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % sizeof(Pack<T, width>) == 0;
}

// One block per piece. All loads of a thread are issued before the first use.
template <typename T, typename G, typename M>
__global__ void __launch_bounds__(threads) adamw_kernel(const AdamWPiece* table, const ElementNumbers* numbers,
                                                        Buffers<T, G, M> buffers, const OptimizerState* state) {
  await_previous_kernel();
  let_next_kernel_begin();
  constexpr bool rounds = !std::is_same_v<M, float>;
  const float gradient_factor = state->gradient_factor;
  if (state->halted != 0.0f || gradient_factor == 0.0f) return;
  const Coefficients c(state->update);
  const AdamWPiece piece = table[blockIdx.x];
  const float decay = piece.decay ? c.weight_decay : 0.0f;
  const G* gradients = buffers.gradients + piece.gradient_offset;
  T* weights = buffers.weights + piece.offset;
  float* master = buffers.master + piece.state_offset;
  M* m = buffers.m + piece.state_offset;
  M* v = buffers.v + piece.state_offset;
  ElementNumbers numbers_of_piece;  // given where moments are rounded
  if constexpr (rounds) numbers_of_piece = numbers[blockIdx.x];
  const RoundingWords random(numbers_of_piece, state->update.update);

  const bool aligned =
      takes_packs(gradients) && takes_packs(weights) && takes_packs(master) && takes_packs(m) && takes_packs(v);
  int singles = 0;  // first element that is handled singly
  if (aligned) {
    singles = piece.count / width * width;
    Pack<G, width> g_packs[iterations];
    Pack<M, width> m_packs[iterations], v_packs[iterations];
    Pack<float, width> master_packs[iterations];
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
        unsigned words[width] = {};
        if constexpr (rounds) random.of(i, words);
#pragma unroll
        for (int j = 0; j < width; ++j) {
          float m_value = to_float(m_packs[k].values[j]), v_value = to_float(v_packs[k].values[j]);
          update(c, decay, to_float(g_packs[k].values[j]) * gradient_factor, m_value, v_value, master_packs[k].values[j]);
          keep(m_value, v_value, words[j], m_packs[k].values[j], v_packs[k].values[j]);
        }
        store_pack(m + i, m_packs[k]);
        store_pack(v + i, v_packs[k]);
        store_pack(master + i, master_packs[k]);
        store<width>(weights + i, master_packs[k].values);
      }
    }
  }
  for (int i = singles + static_cast<int>(threadIdx.x); i < piece.count; i += threads) {
    float m_value = to_float(m[i]), v_value = to_float(v[i]), master_value = master[i];
    update(c, decay, to_float(gradients[i]) * gradient_factor, m_value, v_value, master_value);
    unsigned word = 0;
    if constexpr (rounds) word = random.of(i);
    keep(m_value, v_value, word, m[i], v[i]);
    master[i] = master_value;
    weights[i] = from_float<T>(master_value);
  }
}

}  // namespace

void norm_to_clip(StreamRef stream, const NormToClip& args) {
  launch(stream, {1, 1}, norm_to_clip_kernel, device_pointer<float>(args.sum_of_squares), device_pointer<float>(args.loss),
         device_pointer<float>(args.ignored), static_cast<double>(args.targets), args.update,
         device_pointer<OptimizerState>(args.optimizer_state));
}

void adamw(StreamRef stream, const AdamW& args) {
  const std::int64_t pieces = args.table.elements() / bytes_of_piece(args.m.dtype);
  if (pieces == 0) return;
  const auto* const table = device_pointer<AdamWPiece>(args.table);
  const auto* const numbers = reinterpret_cast<const ElementNumbers*>(table + pieces);
  with_type(args.weights.dtype, [&](auto t) {
    with_type(args.gradients.dtype, [&](auto g) {
      with_type(args.m.dtype, [&](auto moment) {
        using T = decltype(t);
        using G = decltype(g);
        using M = decltype(moment);
        const Buffers<T, G, M> buffers{device_pointer<G>(args.gradients), device_pointer<float>(args.master),
                                       device_pointer<M>(args.m), device_pointer<M>(args.v), device_pointer<T>(args.weights)};
        launch(stream, {grid_size(pieces), threads}, adamw_kernel<T, G, M>, table, numbers, buffers,
               device_pointer<OptimizerState>(args.optimizer_state));
      });
    });
  });
}

}  // namespace plait::ops::cuda
