#include "comm/p2p/mover.h"

#include <algorithm>

#include "core/error.h"

namespace plait::comm::p2p {

void copy_all(StreamRef stream, std::span<const Copy> copies) {
  require(copies.size() <= most_copies, "copy_all: at most most_copies");
  if (stream.device().is_cuda()) return copy_all_by_kernel(stream, copies);
  for (const Copy& copy : copies) {
    if (copy.bytes > 0) stream.copy(copy.to, copy.from, copy.bytes);
  }
}

void CounterBatch::write(std::uint32_t* counter, std::uint32_t value) {
  operations_.push_back({CounterOperation::Kind::write, counter, value});
}

void CounterBatch::wait(const std::uint32_t* counter, std::uint32_t value, const std::shared_ptr<std::atomic<bool>>& released) {
  operations_.push_back({CounterOperation::Kind::wait, const_cast<std::uint32_t*>(counter), value});
  released_.push_back(released);
}

CounterValue CounterBatch::last() const {
  return operations_.empty() ? CounterValue{} : CounterValue{operations_.back().counter, operations_.back().value};
}

void CounterBatch::append(const CounterBatch& other) {
  operations_.insert(operations_.end(), other.operations_.begin(), other.operations_.end());
  released_.insert(released_.end(), other.released_.begin(), other.released_.end());
}

void CounterBatch::enqueue(StreamRef stream) {
  stream.count(operations_);
  if (!stream.device().is_cuda() && !released_.empty()) {
    stream.enqueue_host([flags = std::move(released_)] {
      if (std::ranges::any_of(flags, [](const auto& released) { return released->load(); }))
        throw CommError("Mailbox: aborted");
    });
  }
  operations_.clear();
  released_.clear();
}

}  // namespace plait::comm::p2p
