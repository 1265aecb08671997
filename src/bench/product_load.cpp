#include "bench/product_load.h"

#include <cstring>

#include "bench/pattern.h"
#include "core/philox.h"
#include "ops/linear.h"

namespace plait::bench {
namespace {

// Normal numbers, repeated with a period that no row has: a chip's power, and so its clock, depends on the data.
Pattern random_numbers(DType dtype, std::string_view name) {
  constexpr std::size_t count = 262'147;  // a prime
  std::vector<float> values(count);
  Random(1, name).fill_normal(0, values);
  std::vector<std::byte> block(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    if (dtype == DType::bf16) {
      const BFloat16 value(values[i]);
      std::memcpy(block.data() + 2 * i, &value, 2);
    } else {
      std::memcpy(block.data() + 4 * i, &values[i], 4);
    }
  }
  return Pattern(std::move(block));
}

}  // namespace

ProductLoad::ProductLoad(DeviceMemory& memory, std::int64_t dim)
    : dim_(dim), dtype_(memory.device().is_cuda() ? DType::bf16 : DType::f32), memory_(memory) {
  const std::size_t bytes = matrix({}).bytes();
  for (Buffer* buffer : {&x_, &w_, &y_}) *buffer = memory.allocate(bytes);
  const std::size_t needed = ops::workspace_bytes(memory.device().kind, {.attention = {}, .compute = dtype_});
  workspace_ = memory.allocate(needed);
  context_ = ops::make_op_context(memory.device(), {workspace_.data(), DType::u8, {static_cast<std::int64_t>(needed)}});
}

void ProductLoad::synchronize_warm_up(StreamRef stream) {
  PatternTraffic traffic(memory_);
  traffic.synchronize_fill(stream, random_numbers(dtype_, "x"), matrix(x_), 0);
  traffic.synchronize_fill(stream, random_numbers(dtype_, "w"), matrix(w_), 0);
  for (int i = 0; i < 3; ++i) enqueue(stream);
  stream.synchronize();
  context_->set_tuning(false);
}

void ProductLoad::enqueue(StreamRef stream) {
  ops::linear_forward(stream, *context_,
                      {.x = matrix(x_), .w = matrix(w_), .bias = {}, .residual = {}, .y = matrix(y_), .pre_activation = {}});
}

}  // namespace plait::bench
