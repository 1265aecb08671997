// Brings tensors of any size to the host, part by part through a small pinned buffer.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "core/stream.h"
#include "core/view.h"

namespace plait::runtime {

// All functions block, and read what `stream` has written so far.
class TensorReader {
 public:
  // `staging`: `bytes` of pinned memory that nobody else uses meanwhile. Stream and staging must outlive this.
  TensorReader(StreamRef stream, void* staging, std::size_t bytes) : stream_(stream), staging_(staging), bytes_(bytes) {}

  // Shows the elements in order, a part at a time.
  void synchronize_scan(View view, const std::function<void(std::span<const double>)>& look);
  std::vector<double> synchronize_read(View view);
  bool synchronize_is_finite(View view);

 private:
  StreamRef stream_;
  void* staging_;
  std::size_t bytes_;
};

}  // namespace plait::runtime
