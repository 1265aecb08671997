// Starts the ranks of a job as threads or as processes, or joins those that an outside launcher (torchrun, Slurm, Open MPI) has
// started. Nothing below this file can tell which.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "comm/rendezvous.h"
#include "core/config.h"
#include "core/device.h"
#include "core/error.h"

namespace plait::comm {
class Meeting;
}

namespace plait::launch {

enum class LaunchMode { threads, processes, external };

// The actions that RankContext::on_abort has registered.
struct AbortActions {
  std::mutex mutex;
  std::vector<std::unique_ptr<std::stop_callback<std::function<void()>>>> callbacks;
};

// One rank's position in the job; what its body is given.
struct RankContext {
  int rank = 0;
  int size = 1;
  Device device;
  std::shared_ptr<comm::Rendezvous> rendezvous;
  int local_rank = 0;   // among the ranks of this host
  bool is_main = true;  // rank 0: the one that prints and writes files

  // All ranks of the job, to tell each other something. `name` is used once in a job; `timeout`: comm.timeout_s.
  comm::Meeting meeting(const std::string& name, std::chrono::milliseconds timeout) const;

  // Requested when another rank thread has failed, so that this one stops waiting for it. Tie the abort of a communicator to it
  // with an object that lives no longer than the communicator:
  //   std::stop_callback release(context.abort_requested, [&] { communicator->abort(); });
  std::stop_token abort_requested;
  // The same for actions that own what they touch (such as a weak_ptr to the communicator): `action` runs on the failing rank's
  // thread, or at once if the abort has been requested already, and stays registered for the whole job. Thread-safe.
  void on_abort(std::function<void()> action);

  std::shared_ptr<AbortActions> abort_actions = std::make_shared<AbortActions>();
};

struct LaunchPlan {
  LaunchMode mode = LaunchMode::threads;
  int ranks = 1;
  std::vector<Device> devices;           // by rank; in external mode one entry, this rank's
  std::string explanation;               // "2 ranks as threads on the CPU: no usable NVIDIA driver (...)"
  std::string binding = {};              // of the ranks to processors (rank_binding.h); "" on CPUs, whose ranks are not bound
  std::optional<RankContext> this_rank;  // when this process is one rank of the job: a child of `processes`, or external
  std::chrono::milliseconds grace{10'000};  // processes: from SIGTERM to SIGKILL
};

// The job was told to end, by a signal.
class Interrupted : public Error {
 public:
  using Error::Error;
};

// Decides mode, number of ranks and devices. ConfigError when the machine cannot do what the config asks for.
LaunchPlan plan_launch(const Config& config);

// This process's position, if it was started as one rank: by our own launcher (launch.mode processes) or an outside one
// (external). ConfigError if the mode is external and the environment does not give the position.
std::optional<RankContext> rank_from_environment(const Config& config);

// Runs `body` once for every rank and returns the exit status of the job.
//
// threads: all bodies run here. When one throws, the rendezvous is aborted and abort_requested is set; once all have ended,
// the first exception is thrown again with the rank before its message, any Error as its own class (a CommError only if there
// is no other, since it is mostly the consequence of what a peer threw; a PeerLostError, which always is, only if there is
// nothing else). processes: starts this program again with `argv`, as main got it, once per rank, and waits; to be called from
// the main thread. In those children, as in external mode, it runs `body` for the one rank. A child that fails makes the others
// end (SIGTERM, after plan.grace SIGKILL). The status is the failing child's if it is 1, 2 or 3; CommError if it died
// otherwise. SIGINT, SIGTERM and SIGHUP are passed on to the children, and Interrupted is thrown once they have ended; they die
// with their parent.
int launch(const LaunchPlan& plan, const std::function<void(RankContext&)>& body, const std::vector<std::string>& argv);

}  // namespace plait::launch
