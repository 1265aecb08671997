// One rank's membership of an NCCL group: how it joins, calls, leaves, and is thrown out.
//
// NCCL offers two kinds of communicator. One that does not block can be given up at any time, but starts a host thread for
// every call (60 us and more). One that blocks costs a tenth of that, but whoever is stuck in it stays there. So every group
// has both: a parent that does not block, and that never makes a call; and its child, split from it while sharing its
// resources, that blocks, and makes all of them. Aborting a communicator makes all that it shares resources with unusable
// (NCCL's manual, splitShare), because they share the flag that host threads and kernels look at while they wait. No call is
// ever under way on the parent, so it can be aborted while one is stuck on the child, which NCCL allows no communicator
// otherwise, and the child is aborted after it, when its call has let go.
#pragma once

#include <nccl.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "comm/make_communicator.h"

namespace plait::comm {

class NcclMembership {
 public:
  // CommError when a peer is missing for spec.timeout.
  NcclMembership(const GroupSpec& spec, Rendezvous& store);
  NcclMembership(const NcclMembership&) = delete;
  NcclMembership& operator=(const NcclMembership&) = delete;
  // The caller has drained the streams of its calls. Peers may be gone already, so the goodbye has a time limit.
  ~NcclMembership();

  // Runs `enqueue`, which makes a call on the communicator that it is given. CommError, naming the call, if that fails, or an
  // earlier one did meanwhile.
  template <typename Enqueue>
  void call(const char* name, Enqueue enqueue) {
    std::lock_guard lock(mutex_);
    check_usable(name);
    settle(name, child_, enqueue(child_));
  }

  // Runs `work`, whose calls may block this host for as long as a peer does not make them. CommError, naming `name`, if it is
  // not done after the group's timeout.
  void run_in_time(const char* name, const std::function<void()>& work);

  void abort() noexcept;  // returns at once; from any thread

 private:
  void join(const ncclUniqueId& id, int max_ctas);
  void say_goodbye() noexcept;
  // False if `work` took longer; the parent, and so whatever `work` waited for, is aborted then.
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
