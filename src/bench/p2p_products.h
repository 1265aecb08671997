// Measures how much messages between a pair slow down concurrent matrix products on both ends.
//
// Both ends run the same number of products, one after the other, alone and during the messages of each method. All methods
// offer the same bytes per product: with every product a fixed number of messages may leave (message_loads()), few enough for
// each method to move them while that product runs. So messages keep coming as long as products run: a fast method waits for
// the next product instead of running out of messages, and a slow one does not continue alone.
//
// Power and temperature change GPU clocks by more than the measured effect. So half a second of products runs first. Then
// methods take turns between runs alone (alone, method, alone, method, ..., alone), and each round begins with a different
// method. A run is compared with its two neighbours (core/statistics.h), and the first quarter of its products is not timed.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "bench/p2p_pair_end.h"
#include "core/device.h"
#include "core/stream.h"
#include "ops/op_context.h"

namespace plait::bench {

// `carried`, by method: messages that arrived while the products ran, in a trial that offered all the messages the method can
// move by itself. `reference` is the communication library's method; without it, the method that carried most. Returns the
// number of messages for each method, at least 2. It is the same for all compared methods: nine tenths of the number that the
// slowest of them carried. A method that carried less than half of the reference is not compared: it gets nine tenths of its
// own count, at most the common number, so that it neither shrinks the common number nor makes its own run long.
std::vector<int> message_loads(const std::vector<int>& carried, std::optional<std::size_t> reference);

// The product with which message `message` may leave if `messages` are spread evenly over `products`. All count from 0.
int product_of(int message, int messages, int products);

// A series of matrix products like those of a training step.
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

// Both ends call it and get the same result: for messages of 16 MB and of 64 MB (smaller on a CPU) a row for each method, with
// medians over `rounds` (p2p_benchmark.h lists the keys). Contents are compared byte by byte in the trial that chooses the
// number of messages, not between the timed runs, where GPUs would cool down. `dim` 0: ProductLoad::default_dim.
nlohmann::ordered_json measure_products(PairEnd& end, std::int64_t dim, int rounds);

}  // namespace plait::bench
