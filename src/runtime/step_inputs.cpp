#include "runtime/step_inputs.h"

#include <cstring>

#include "core/error.h"

namespace plait::runtime {

StagedBatches::StagedBatches(std::byte* memory, std::size_t micro_batches, std::size_t tensor_bytes, bool has_starts)
    : memory_(memory), micro_batches_(micro_batches), tensor_bytes_(tensor_bytes), tensors_(has_starts ? 3 : 2) {}

void StagedBatches::fill(BatchSource& batches, StreamRef idle) {
  for (std::size_t mb = 0; mb < micro_batches_; ++mb) {
    const HostBatch batch = batches.next();
    std::memcpy(tensor(mb, 0), batch.tokens, tensor_bytes_);
    std::memcpy(tensor(mb, 1), batch.targets, tensor_bytes_);
    if (tensors_ == 3) {
      require(batch.starts != nullptr, "StagedBatches: the batch does not say where its documents begin");
      std::memcpy(tensor(mb, 2), batch.starts, tensor_bytes_);
    }
    batches.release(idle);
  }
}

HostBatch StagedBatches::next() {
  const std::size_t mb = next_;
  next_ = (next_ + 1) % micro_batches_;
  const auto at = [&](std::size_t which) { return reinterpret_cast<const std::int32_t*>(tensor(mb, which)); };
  return {at(0), at(1), tensors_ == 3 ? at(2) : nullptr};
}

}  // namespace plait::runtime
