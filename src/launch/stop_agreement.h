// All ranks of a job stop at the same boundary between steps, whichever of them a signal reaches first.
//
// Every rank comes to the same boundaries in the same order: that after step 7 is the ninth, say, on all of them. Its thread is
// mostly steps ahead of its device, by other numbers on each rank, so the first to see a signal cannot just stop at its next
// boundary: another may be past it, and what that one has enqueued needs the first.
//
// Nothing is added to a step for that. A thread of its own on each rank looks for a signal of its process, and now and then for
// the wish of another rank in the rendezvous. Then each rank
//   1. says which boundary it has passed last, and for the moment passes no further one;
//   2. hears what all others say, and stops at the first boundary that nobody has passed: the greatest number said, and one.
// A rank behind that goes on up to there. This cannot end in a circle of waits: what ranks hear of each other does not wait for
// any device, as their own threads say it; and a rank that waits for the others' words at a boundary has enqueued all up to
// there, while one that needs more of it has passed, and so said, a greater number, which lets the first go on. And the
// boundary is the next one of the rank that is furthest ahead, so nobody is asked for more than was under way.
//
// A second signal ends the rank at once: its life is aborted, which lets everything go that waits, and a process that does not
// end by that within 1 s is ended.
#pragma once

#include <chrono>
#include <memory>

#include "launch/rank_context.h"
#include "launch/stop_signals.h"

namespace plait::launch {

class StopAgreement {
 public:
  // Every rank of the job makes one, in whatever order. `signals` and what `rank` holds outlive it. `timeout` (comm.timeout_s):
  // how long to wait for the others' words; then the rank's life is aborted, with a reason that names who said nothing.
  StopAgreement(const StopSignals& signals, const RankContext& rank, std::chrono::milliseconds timeout);
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;
  ~StopAgreement();  // leaves

  // By the rank's thread, at every boundary. False: go on. True, on all ranks at the same boundary, and at each call after
  // that: stop here. Waits only between a signal and the agreement; CommError if the rank's life is aborted meanwhile.
  bool stop_here();
  // No boundary will come any more: whoever asks after that is told that this rank has passed them all.
  void leave() noexcept;
  // What is behind the agreement, as this rank knows it: "signal 15 (Terminated)", of rank 3 if it came there.
  std::string reason() const;

 private:
  class Talk;
  std::shared_ptr<Talk> talk_;  // shared with the rank's life
};

}  // namespace plait::launch
