// Gets told when the instructions of a program are issued to their streams, and may put events there.
#pragma once

#include "core/stream.h"

namespace plait::runtime {

// For each instruction in order, on the issuing thread: waiting, started and done are called before its waits are enqueued,
// between waits and work, and after the work. This base class does nothing.
class IssueObserver {
 public:
  virtual ~IssueObserver() = default;
  virtual void waiting(int instruction, StreamRef stream);
  virtual void started(int instruction, StreamRef stream);
  // Called where observes_end says so, with the stream's companion (StreamRef::aside), which runs behind the instruction.
  virtual void done(int instruction, StreamRef aside);
  virtual bool observes_end(int instruction) const;
  // Whether every kernel is launched by itself, so that those who record kernels find each on its instruction's stream.
  virtual bool observes_kernels() const;
  // Of a receive: the event to record when its sender is ready. nullptr: none.
  virtual Event* ready(int instruction);
};

inline void IssueObserver::waiting(int, StreamRef) {}
inline void IssueObserver::started(int, StreamRef) {}
inline void IssueObserver::done(int, StreamRef) {}
inline bool IssueObserver::observes_end(int) const { return false; }
inline bool IssueObserver::observes_kernels() const { return false; }
inline Event* IssueObserver::ready(int) { return nullptr; }

}  // namespace plait::runtime
