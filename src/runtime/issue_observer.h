// Who wants to know when the instructions of a program are issued to their streams, and may put events there.
#pragma once

#include "core/stream.h"

namespace plait::runtime {

// For each instruction in its order, on the issuing thread: waiting, started and done with the instruction's stream as it is
// before its waits, between waits and work, and after its work. This one wants to know nothing.
class IssueObserver {
 public:
  virtual ~IssueObserver() = default;
  virtual void waiting(int instruction, StreamRef stream);
  virtual void started(int instruction, StreamRef stream);
  virtual void done(int instruction, StreamRef stream);
  // What is to be recorded when the other end of an instruction has come: the sender of a message, the last rank of a
  // collective. nullptr: nothing.
  virtual Event* ready(int instruction);
};

inline void IssueObserver::waiting(int, StreamRef) {}
inline void IssueObserver::started(int, StreamRef) {}
inline void IssueObserver::done(int, StreamRef) {}
inline Event* IssueObserver::ready(int) { return nullptr; }

}  // namespace plait::runtime
