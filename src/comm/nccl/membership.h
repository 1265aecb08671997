// One rank's membership of an NCCL group: how it joins, calls, leaves and is aborted.
//
// NCCL offers two kinds of communicator. A non-blocking one can be aborted at any time, but starts a host thread for every call
// (60 us and more). A blocking one costs a tenth of that, but a thread stuck in a call stays stuck. So every group has both: a
// non-blocking parent that never makes a call, and a blocking child, split from it with shared resources, that makes all of
// them. Aborting a communicator makes everything that shares its resources unusable (NCCL's manual, splitShare), because they
// share the flag that host threads and kernels check while they wait. No call is ever in progress on the parent, so it can be
// aborted while one is stuck on the child; NCCL does not allow that for a communicator's own calls. The child is aborted
// afterwards, once its call has returned.
#pragma once

#include <nccl.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "comm/communicator.h"

namespace plait::comm {

class Meeting;

class NcclMembership {
 public:
  // CommError when a peer is missing for spec.timeout.
  NcclMembership(const GroupSpec& spec, Meeting& meeting);
  NcclMembership(const NcclMembership&) = delete;
  NcclMembership& operator=(const NcclMembership&) = delete;
  // The caller has drained the streams that it used. Peers may be gone already, so the goodbye has a time limit.
  ~NcclMembership();

  // Runs `enqueue`, which makes a call on the communicator passed to it. CommError naming the call if it fails, or if an
  // earlier call has failed meanwhile.
  template <typename Enqueue>
  void call(const char* name, Enqueue enqueue) {
    std::lock_guard lock(mutex_);
    check_usable(name);
    settle(name, child_, enqueue(child_));
  }

  // Runs `work`, whose calls may block this host until a peer makes them too. CommError naming `name` if it is not done within
  // the group's timeout.
  void run_in_time(const char* name, const std::function<void()>& work);

  void abort() noexcept;  // returns at once; from any thread

 private:
  void join(const ncclUniqueId& id, int max_ctas);
  void say_goodbye() noexcept;
  // False if `work` took longer; the parent is then aborted, and with it anything that `work` waited for.
  bool run_for(std::chrono::milliseconds limit, const std::function<void()>& work);
  void settle(const char* name, ncclComm_t comm, ncclResult_t status) const;
  void free_aborted() noexcept;
  void check_usable(const char* name) const;
  std::string silence(const char* name) const;
  [[noreturn]] void fail(const char* name, ncclComm_t comm, ncclResult_t status) const;

  const std::string label_;
  const int rank_;
  const int size_;
  const Device device_;
  const std::chrono::milliseconds timeout_;
  std::atomic<bool> aborted_{false};
  std::thread aborter_;  // frees the communicators after abort()
  ncclComm_t parent_ = nullptr;
  std::mutex mutex_;  // held during calls; guards child_
  ncclComm_t child_ = nullptr;
};

}  // namespace plait::comm
