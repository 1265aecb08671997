#include "launch/launch.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/nccl_environment.h"
#include "core/error.h"
#include "launch/launch_processes.h"
#include "launch/stop_signals.h"
#include "ops/libraries.h"
#include "site/rank_binding.h"

namespace plait::launch {

namespace {

// Rethrows `failure` with the rank before its message, unless there is only one rank. Its class is kept, since the exit status
// depends on it.
[[noreturn]] void rethrow_from(int rank, int size, std::exception_ptr failure) {
  if (size == 1) std::rethrow_exception(failure);
  const std::string prefix = "rank " + std::to_string(rank) + ": ";
  try {
    std::rethrow_exception(failure);
  } catch (Error& error) {
    error.add_prefix(prefix);
    throw;
  } catch (const std::exception& error) {
    throw Error(prefix + error_text(error));
  }
}

// Runs the body of one rank, bound as the plan says, to the end of its life. If it throws, calls `note` and then releases the
// ranks that wait for this one.
void run_rank(RankContext& context, RankBinding bind, const std::function<void(RankContext&)>& body,
              const std::function<void(std::exception_ptr)>& note) {
  try {
    site::bind_rank(context.rank, context.device, bind);
    make_current(context.device);
    body(context);
  } catch (...) {
    const runtime::RankLife::Failure failure = runtime::RankLife::failure_of(std::current_exception());
    context.life->fail(failure, [] {});
    note(std::current_exception());
    context.rendezvous->abort(context.life->reason_of(failure));
  }
  context.life->retire();
}

struct Failure {
  int rank = 0;
  std::exception_ptr exception;
  bool ended_by_another = false;  // before it failed

  // The likelihood that this is a response to another rank's failure, whose communicators close while its own error is on the
  // way up: usually for a CommError, always for a lost peer.
  int distance_from_cause() const {
    try {
      std::rethrow_exception(exception);
    } catch (const PeerLostError&) {
      return 2;
    } catch (const CommError&) {
      return 1;
    } catch (...) {
      return 0;
    }
  }
};

int launch_threads(const LaunchPlan& plan, const std::function<void(RankContext&)>& body) {
  if (plan.devices.front().is_cuda()) comm::settle_nccl_environment(plan.peer_access);
  const auto store = comm::make_thread_rendezvous();
  const std::vector<std::shared_ptr<runtime::RankLife>> lives = runtime::make_rank_lives(plan.ranks);
  std::mutex mutex;
  std::vector<Failure> failures;  // in order of arrival

  const auto run = [&](int rank) {
    RankContext context;
    context.rank = rank;
    context.size = plan.ranks;
    context.device = plan.devices[static_cast<std::size_t>(rank)];
    context.rendezvous = store;
    context.local_rank = rank;
    context.is_main = rank == 0;
    context.life = lives[static_cast<std::size_t>(rank)];
    run_rank(context, plan.bind, body, [&](std::exception_ptr exception) {
      std::lock_guard lock(mutex);
      failures.push_back({rank, exception, !context.life->failure()});
    });
  };

  {
    std::vector<std::jthread> threads;
    try {
      for (int rank = 0; rank < plan.ranks; ++rank) threads.emplace_back(run, rank);
    } catch (const std::system_error& error) {
      lives.front()->abort("a rank's thread could not be started");
      store->abort("a rank's thread could not be started");
      throw DeviceError("cannot start the ranks: " + error_text(error));
    }
  }
  if (failures.empty()) return 0;
  const auto cause = std::min_element(failures.begin(), failures.end(), [](const Failure& a, const Failure& b) {
    return std::pair(a.distance_from_cause(), a.ended_by_another) < std::pair(b.distance_from_cause(), b.ended_by_another);
  });
  rethrow_from(cause->rank, plan.ranks, cause->exception);
}

// Runs the rank that this process is.
int launch_this_rank(const LaunchPlan& plan, const std::function<void(RankContext&)>& body) {
  RankContext context = *plan.this_rank;
  if (plan.mode == LaunchMode::processes) unblock_stop_signals();
  if (context.device.is_cuda()) comm::settle_nccl_environment(plan.peer_access);
  context.life = std::make_shared<runtime::RankLife>(context.rank);
  std::exception_ptr failure;
  run_rank(context, plan.bind, body, [&](std::exception_ptr exception) { failure = exception; });
  if (failure) rethrow_from(context.rank, context.size, failure);
  return 0;
}

// Ranks on CPUs share the cores: each product gets as many threads as there are cores per rank. A job under an outside launcher
// may span hosts, and this process knows only its own: it counts all ranks and so asks for too few threads, not too many.
void share_cores(const LaunchPlan& plan) {
  const auto ranks = static_cast<unsigned>(std::max(1, plan.this_rank ? plan.this_rank->size : plan.ranks));
  ops::set_blas_threads(static_cast<int>(std::max(1u, std::thread::hardware_concurrency() / ranks)));
}

}  // namespace

int launch(const LaunchPlan& plan, const std::function<void(RankContext&)>& body, const std::vector<std::string>& argv) {
  share_cores(plan);
  if (plan.this_rank) return launch_this_rank(plan, body);
  require(plan.ranks >= 1 && plan.devices.size() == static_cast<std::size_t>(plan.ranks),
          "a launch plan needs one device per rank");
  require(plan.mode != LaunchMode::external, "an external launch plan needs this process's rank");
  return plan.mode == LaunchMode::processes ? launch_processes(plan, argv) : launch_threads(plan, body);
}

}  // namespace plait::launch
