#include "ops/rope.h"

#include <cmath>

#include "core/error.h"
#include "ops/attention_check.h"
#include "ops/implementations.h"

namespace plait::ops {
namespace {

template <typename T>
void fill_table(double base, View table) {
  const std::int64_t sequence = table.shape[0], head_dim = table.shape[1], half = head_dim / 2;
  T* values = table.as<T>();
  for (std::int64_t position = 0; position < sequence; ++position) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(position) * std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      values[position * head_dim + i] = static_cast<T>(std::cos(angle));
      values[position * head_dim + half + i] = static_cast<T>(std::sin(angle));
    }
  }
}

}  // namespace

void rope_table(double base, View host_table) {
  require(base > 0, "rope_table: argument 'base' must be positive, got " + std::to_string(base));
  require(host_table && host_table.shape.rank() == 2 && host_table.shape[1] % 2 == 0 &&
              (host_table.dtype == DType::f32 || host_table.dtype == DType::f64),
          "rope_table: argument 'host_table' must be f32 or f64 [sequence, even head_dim], got " + describe(host_table));
  host_table.dtype == DType::f64 ? fill_table<double>(base, host_table) : fill_table<float>(base, host_table);
}

void rope(StreamRef stream, const Rope& args) {
  const ArgumentCheck check("rope", stream);
  const AttentionShape& s = args.shape;
  check_attention_shape(check, s);
  check.that(s.head_dim % 2 == 0, "shape", "of an even head_dim", std::to_string(s.head_dim));
  check.compute_tensor("qkv", args.qkv, 2);
  check.tensor("qkv", args.qkv, args.qkv.dtype, packed_qkv_shape(s));
  check.given("table", args.table);
  check.tensor("table", args.table, statistics_type(args.qkv.dtype), {args.table.shape[0], s.head_dim});
  check.that(args.table.shape[0] >= s.sequence, "table", "of at least `sequence` rows",
             describe(args.table) + " for sequence " + std::to_string(s.sequence));
  if constexpr (PLAIT_HAS_CUDA) {
    if (check.on_cuda()) return cuda::rope(stream, args);
  }
  cpu::rope(stream, args);
}

}  // namespace plait::ops
