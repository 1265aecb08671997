// A series of matrix products like those of a training step, to measure how much messages slow them down.
#pragma once

#include <memory>

#include "core/device.h"
#include "core/stream.h"
#include "ops/op_context.h"

namespace plait::bench {

class ProductLoad {
 public:
  // Multiplies two square matrices with `dim` rows of random numbers, in bf16 on a GPU and f32 on a CPU.
  ProductLoad(DeviceMemory& memory, std::int64_t dim);
  void enqueue(StreamRef stream);
  // Runs the first product, which chooses the algorithm and blocks the caller. Later products do not.
  void synchronize_warm_up(StreamRef stream);
  double flops() const { return 2.0 * static_cast<double>(dim_) * static_cast<double>(dim_) * static_cast<double>(dim_); }
  std::int64_t dim() const { return dim_; }
  DType dtype() const { return dtype_; }
  static std::int64_t default_dim(DeviceKind kind) { return kind == DeviceKind::cuda ? 8192 : 256; }

 private:
  std::int64_t dim_;
  DType dtype_;
  Buffer workspace_, x_, w_, y_;
  std::unique_ptr<ops::OpContext> context_;
  View matrix(const Buffer& buffer) const { return {buffer.data(), dtype_, {dim_, dim_}}; }
  DeviceMemory& memory_;
};

}  // namespace plait::bench
