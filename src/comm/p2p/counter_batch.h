// Operations of a stream on the counters of many mailboxes at once: one call of the driver, because a call for each would take
// more host time than the exchange of a segment leaves.
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
  // Later work runs once the counter has reached `value`. After a released wait the memory may be in any state (the other end
  // may be using it), so a host stream fails there, and with it all work that would use the missing data.
  void wait(const std::uint32_t* counter, std::uint32_t value, const std::shared_ptr<std::atomic<bool>>& released);
  // Enqueues all in the order in which they were added, and empties the batch.
  void enqueue(StreamRef stream);
  // The last operation, for a kernel that does the same; null if there are none. It replaces the others if all of them write
  // one counter.
  CounterValue last() const;
  void append(const CounterBatch& other);

 private:
  std::vector<CounterOperation> operations_;
  std::vector<std::shared_ptr<std::atomic<bool>>> released_;
};

}  // namespace plait::comm::p2p
