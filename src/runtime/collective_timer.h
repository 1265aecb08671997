// Times the collectives within segments, which no program lists, with a communicator that records them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace plait::runtime {

// One step's collectives, in order. The first steps create the events; later steps reuse them.
class CollectiveTimes {
 public:
  struct TimedCollective {
    const char* name;  // "all_gather"
    int instruction;   // in which it was
    Event begin, end;
  };
  void clear() { used_ = 0; }
  TimedCollective& next(Device device, const char* name, int instruction);
  std::size_t size() const { return used_; }
  const TimedCollective& operator[](std::size_t index) const { return entries_[index]; }

 private:
  std::vector<TimedCollective> entries_;
  std::size_t used_ = 0;
};

// Where a timed communicator writes its times; nothing is timed while `times` is null.
struct CollectiveTimer {
  CollectiveTimes* times = nullptr;
  int instruction = -1;
};

// `inner` with its collectives timed. Both must outlive it.
std::unique_ptr<comm::Communicator> make_timed_communicator(comm::Communicator& inner, CollectiveTimer& timer);

}  // namespace plait::runtime
