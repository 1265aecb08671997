// What a stream does at once with counters of several mailboxes: one call of the driver, where one for each would cost the host
// more than the exchange of a segment leaves it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/p2p/mover.h"
#include "core/stream.h"

namespace plait::comm::p2p {

class CounterBatch {
 public:
  void write(std::uint32_t* counter, std::uint32_t value);
  // Later work runs once the counter has reached `value`. A wait that was released says nothing about the memory (the other end
  // may be busy with it), so a host stream fails there, and with it all that would compute from what never came.
  void wait(const std::uint32_t* counter, std::uint32_t value, const std::shared_ptr<std::atomic<bool>>& released);
  // In the order in which they were added; none is left.
  void enqueue(StreamRef stream);
  // For a kernel that does the same: the last of them, null where there are none. The others are superseded by it if all of
  // them write one counter.
  CounterValue last() const;
  void append(const CounterBatch& other);

 private:
  std::vector<CounterOperation> operations_;
  std::vector<std::shared_ptr<std::atomic<bool>>> released_;
};

}  // namespace plait::comm::p2p
