// AdamW (Loshchilov & Hutter 2019) over flat buffers, fused with gradient clipping and the cast of the updated weights.
//
// All control is on the device, so a step never waits for the host: the clip factor, the "not finite" flag and the update share
// an OptimizerState block that norm_to_clip writes and adamw reads. Values that change from update to update also come from
// memory, never from kernel arguments, so the same launches serve every step (runtime/cuda_graph.h).
#pragma once

#include <vector>

#include "core/stream.h"
#include "core/view.h"
#include "ops/op_context.h"

namespace plait::ops {

// Settings of one update; `update` counts from 1. clip <= 0: no clipping.
struct UpdateSettings {
  std::int64_t update = 1;
  float lr = 0, beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f, weight_decay = 0.1f, clip = 1.0f;
};

// UpdateSettings as the coefficients that the kernels use.
struct UpdateCoefficients {
  float lr, beta1, beta2, epsilon, weight_decay, clip;
  double correction1, correction2;  // 1 / (1 - beta^update)
  std::int64_t update;
};
UpdateCoefficients update_coefficients(const UpdateSettings& settings);

// Written by norm_to_clip, read by adamw; lives in device memory and is copied to the host when a metric is due. Zero it first.
// Loss and norm are averages over the targets that count, and 0 if there are none.
struct OptimizerState {
  float grad_norm;        // global L2 norm before clipping
  float gradient_factor;  // gradients are multiplied by this: corrects for ignored targets, and clips. 0 if no target counts
                          // counts: adamw does nothing
  float halted;           // set to 1 for good when loss or norm is not finite. adamw then does nothing, so that the
                          // weights that produced the bad value can be examined
  float loss;
  float ignored;  // ignored targets
  UpdateCoefficients update;
};
// Size of OptimizerState as an f32 view.
inline constexpr std::int64_t optimizer_state_floats = sizeof(OptimizerState) / sizeof(float);

// The sums of a step over the global batch: Σ gradient², Σ loss, and the number of ignored targets (ops/cross_entropy.h), one
// f32 each (on the host also f64). Gradients and losses were scaled by 1 / targets, counting all targets. The results are
// averages over targets - ignored; where none is ignored they have the bits of the sums.
struct NormToClip {
  View sum_of_squares, loss, ignored;
  std::int64_t targets = 0;
  const UpdateCoefficients* update = nullptr;  // read when the stream reaches it; on a GPU it lies in pinned host memory
  View optimizer_state;
};
void norm_to_clip(StreamRef stream, const NormToClip& args);

// Selects the random numbers that round a range's elements where moments are bf16 (ops/moment_rounding.h): those of the
// parameter `key`, indexed by the element's number in the whole parameter. So replicas of an element use the same ones,
// wherever it lies in their buffers.
struct ElementNumbers {
  std::uint64_t key = 0;
  std::int64_t first = 0;  // number of the first element
  // For a range that begins in column `column` of `columns`: after each of its rows the whole parameter has `skip` elements
  // that are not in the range. skip 0: numbers are consecutive.
  std::int32_t column = 0, columns = 1, skip = 0;

  std::int64_t of(std::int64_t element) const { return first + element + skip * ((column + element) / columns); }
  ElementNumbers from(std::int64_t element) const {
    return {key, of(element), static_cast<std::int32_t>((column + element) % columns), columns, skip};
  }
};

// One run of consecutive elements that shares its weight decay. Offsets in elements; all advance together within a range.
struct AdamWRange {
  std::int64_t offset = 0;           // into weights
  std::int64_t gradient_offset = 0;  // differs from `offset` where ZeRO-2 keeps only this rank's shard of the gradients
  std::int64_t state_offset = 0;     // into master, m and v: likewise under ZeRO-1
  std::int64_t count = 0;
  bool decay = false;
  ElementNumbers numbers = {};
};

// Cuts ranges into pieces for one thread block each and returns them as an opaque table of i32/i64 data, to be copied into
// device memory once (View of u8, bytes = table.size()). `moments`: their type; with bf16 the table includes the ranges'
// numbers.
std::vector<std::uint8_t> adamw_table(const std::vector<AdamWRange>& ranges, DType moments = DType::f32);
// Size of adamw_table() without building it: a large model's table takes megabytes, and the planner asks for thousands of
// sizes.
std::size_t adamw_table_bytes(const std::vector<AdamWRange>& ranges, DType moments = DType::f32);

// Makes the update that the last norm_to_clip set up.
// For every element of the table: g = gradient * gradient_factor; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g²;
// master -= lr * (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay * master); weights = cast(master).
//   gradients G (f32, f64, bf16); master: M = f32, or f64 where the weights are f64; m and v: M, or both bf16 where M is f32;
//   weights T. All flat, 1-D. weights may be the same memory as master when T == M.
// All arithmetic is in M. bf16 moments are rounded on writing, by ops/moment_rounding.h.
struct AdamW {
  View table;
  View gradients, master, m, v, weights;
  View optimizer_state;
};
void adamw(StreamRef stream, const AdamW& args);

}  // namespace plait::ops
