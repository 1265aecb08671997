// Starts the ranks of a job as threads or as processes, or joins those that an outside launcher (torchrun, Slurm, Open MPI) has
// started. Nothing below this file can tell which.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "launch/launch_plan.h"
#include "launch/rank_context.h"

namespace plait::launch {

// A signal ended the job without a checkpoint. main() ends the process by that signal.
class Interrupted : public Error {
 public:
  explicit Interrupted(const std::string& message, int signal = 0) : Error(message), signal_(signal) {}
  int signal() const { return signal_; }  // 0: not known

 private:
  int signal_;
};

// Runs `body` once for every rank and returns the exit status of the job.
//
// threads: all bodies run here. When one throws, all ranks are aborted (runtime/rank_life.h), and the rendezvous; once all have
// ended, the first exception is rethrown, same class, with the rank before its message (a CommError only if there is no other,
// since it is usually the consequence of a peer's failure; a PeerLostError, which always is, only if there is nothing else; and
// last of all an exception of a rank that another had aborted).
// external: runs `body` here, for the one rank that this process is; join_job() (agreement.h) comes first.
// processes: starts this program again with `argv`, as main got it, once per rank, and waits. In those children it runs `body`
// for the one rank, as in external mode. A child that fails makes the others end (SIGTERM, after plan.grace SIGKILL). The
// status is the failing child's if it is 1, 2 or 3; CommError if it died otherwise. They die with their parent. Stop signals
// (launch/stop_signals.h) are passed on to the children. The status is stopped_status if they stopped for one with a
// checkpoint; Interrupted is thrown if it ended them otherwise, or if there was a second one.
//
// threads and external: bodies that should stop for a signal make a StopAgreement; launch() itself ignores signals.
int launch(const LaunchPlan& plan, const std::function<void(RankContext&)>& body, const std::vector<std::string>& argv);

}  // namespace plait::launch
