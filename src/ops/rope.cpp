#include "ops/rope.h"

#include <cmath>
#include <numbers>

#include "core/error.h"
#include "ops/argument_check.h"
#include "ops/implementations.h"

namespace plait::ops {
namespace {

double scaled(double frequency, const RopeScaling& s) {
  const double turns = s.original_max_position * frequency / (2 * std::numbers::pi);
  if (s.factor == 1 || turns > s.high_freq_factor) return frequency;
  if (turns < s.low_freq_factor) return frequency / s.factor;
  const double kept = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - kept) * frequency / s.factor + kept * frequency;
}

template <typename T>
void fill_table(double base, const RopeScaling& scaling, View table) {
  const std::int64_t sequence = table.shape[0], head_dim = table.shape[1], half = head_dim / 2;
  T* values = table.as<T>();
  for (std::int64_t position = 0; position < sequence; ++position) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double frequency = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      const double angle = static_cast<double>(position) * scaled(frequency, scaling);
      values[position * head_dim + i] = static_cast<T>(std::cos(angle));
      values[position * head_dim + half + i] = static_cast<T>(std::sin(angle));
    }
  }
}

}  // namespace

void rope_table(double base, const RopeScaling& scaling, View host_table) {
  require(base > 0, "rope_table: argument 'base' must be positive, got " + std::to_string(base));
  require(host_table && host_table.shape.rank() == 2 && host_table.shape[1] % 2 == 0 &&
              (host_table.dtype == DType::f32 || host_table.dtype == DType::f64),
          "rope_table: argument 'host_table' must be f32 or f64 [sequence, even head_dim], got " + describe(host_table));
  require(scaling.factor >= 1 && scaling.low_freq_factor < scaling.high_freq_factor,
          "rope_table: argument 'scaling' must have a factor of at least 1, and low_freq_factor below high_freq_factor");
  host_table.dtype == DType::f64 ? fill_table<double>(base, scaling, host_table) : fill_table<float>(base, scaling, host_table);
}

void rope(StreamRef stream, const Rope& args) {
  const ArgumentCheck check("rope", stream);
  const AttentionShape& s = args.shape;
  check_attention_shape(check, s);
  check.that(s.head_dim % 2 == 0, "shape", "of an even head_dim", std::to_string(s.head_dim));
  check.compute_tensor("qkv", args.qkv, 2);
  check.tensor("qkv", args.qkv, args.qkv.dtype, packed_qkv_shape(s));
  check_starts(check, s, args.starts);
  check.given("table", args.table);
  check.tensor("table", args.table, statistics_type(args.qkv.dtype), {args.table.shape[0], s.head_dim});
  check.that(args.table.shape[0] >= s.sequence, "table", "of at least `sequence` rows",
             describe(args.table) + " for sequence " + std::to_string(s.sequence));
  return check.on_cuda() ? cuda::rope(stream, args) : cpu::rope(stream, args);
}

}  // namespace plait::ops
