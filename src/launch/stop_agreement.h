// All ranks of a job stop at the same boundary between steps, whichever of them a signal reaches first.
//
// Every rank passes the same boundaries in the same order: the one after step 7 is, say, the ninth on all of them. Its thread
// is usually steps ahead of its device, by different numbers on each rank, so the first rank that sees a signal cannot just
// stop at its next boundary: another may be past it, and the work enqueued there needs the first rank.
//
// Steps do nothing extra for that. A separate thread on each rank looks for a signal to its process, and now and then for
// another rank's wish in the rendezvous. Then each rank
//   1. says which boundary it has passed last, and for the moment passes no further one;
//   2. hears the others' numbers, and stops at the first boundary that nobody has passed: the greatest number plus one.
// A rank behind that continues up to there. This cannot end in a circle of waits: the ranks' words do not wait for any device,
// as separate threads say them; and a rank that waits for the others' words at a boundary has enqueued everything up to there,
// while a rank that needs more of it has passed, and so said, a greater number, which lets the first continue. The agreed
// boundary is the next one of the rank that is furthest ahead, so no rank has to do more than was already under way.
//
// A second signal ends the rank at once: its life is aborted, which releases everything that waits, and a process that does not
// end within 1 s after that is ended.
#pragma once

#include <chrono>
#include <memory>

#include "launch/rank_context.h"
#include "launch/stop_signals.h"

namespace plait::launch {

class StopAgreement {
 public:
  // Every rank of the job makes one, in any order. `signals` and the members of `rank` outlive it. `timeout` (comm.timeout_s):
  // the limit on waiting for the others' words; then the rank's life is aborted, with a reason that names the silent ranks.
  StopAgreement(const StopSignals& signals, const RankContext& rank, std::chrono::milliseconds timeout);
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;
  ~StopAgreement();  // leaves

  // Called by the rank's thread at every boundary. False: continue. True, on all ranks at the same boundary, and at each later
  // call: stop here. Waits only between a signal and the agreement; CommError if the rank's life is aborted meanwhile.
  bool stop_here();
  // No boundary will come any more: later questions are answered as if this rank had passed them all.
  void leave() noexcept;
  // The cause of the agreement, as far as this rank knows: "signal 15 (Terminated)", with the rank 3 if it came there.
  std::string reason() const;

 private:
  class Talk;
  std::shared_ptr<Talk> talk_;  // shared with the rank's life
};

}  // namespace plait::launch
