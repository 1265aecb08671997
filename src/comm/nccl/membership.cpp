#include "comm/nccl/membership.h"

#include <future>
#include <span>
#include <utility>

#include "comm/meeting.h"
#include "core/error.h"

namespace plait::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds goodbye_limit{5};

// The id that NCCL's first rank makes and all ranks need to join.
struct UniqueId {
  ncclUniqueId id = {};
};

void declare(auto& field, Of<UniqueId> auto& id) { field("id", id.id, HexRule<ncclUniqueId>()); }

ncclUniqueId agree_on_id(const std::string& label, Meeting& meeting) {
  try {
    return meeting
        .tell(0, "nccl/id",
              [] {
                UniqueId made;
                if (ncclGetUniqueId(&made.id) != ncclSuccess)
                  throw CommError(std::string("NCCL: ") + ncclGetLastError(nullptr));
                return made;
              })
        .id;
  } catch (const CommError& error) {
    throw CommError(label + ": cannot join: " + error.what());
  }
}

// The state of `comm` once its last call has finished, or ncclInProgress after `limit`. Not every call says that work goes on
// behind it: ncclCommSplit does not.
ncclResult_t wait_for_progress(ncclComm_t comm, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  for (;;) {
    ncclResult_t state = ncclSuccess;
    if (const ncclResult_t asked = ncclCommGetAsyncError(comm, &state); asked != ncclSuccess) return asked;
    if (state != ncclInProgress || Clock::now() >= deadline) return state;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

// NCCL restores the device that was current before. In a new thread that is device 0, where CUDA would then allocate memory for
// this process, even if the rank uses another device.
void choose_device(Device device) noexcept {
  try {
    make_current(device);
  } catch (const DeviceError&) {
    return;  // only memory depends on it
  }
}

// A peer in another process is connected to this communicator's service thread, for which NCCL waits here until the peer
// destroys its own. A peer that first destroys another communicator, and waits for this rank there, must not be waited for: the
// rest is done when it comes.
void destroy_in_time(Device device, ncclComm_t comm) {
  std::promise<void> promise;
  const std::future<void> done = promise.get_future();
  try {
    std::thread([device, comm, promise = std::move(promise)]() mutable {
      choose_device(device);
      ncclCommDestroy(comm);
      promise.set_value();
    }).detach();
  } catch (const std::exception&) {
    ncclCommDestroy(comm);
    return;
  }
  done.wait_for(goodbye_limit);
}

}  // namespace

NcclMembership::NcclMembership(const GroupSpec& spec, Meeting& meeting)
    : label_("group '" + spec.name + "', rank " + std::to_string(spec.rank) + " of " + std::to_string(spec.size)),
      rank_(spec.rank),
      size_(spec.size),
      device_(spec.device),
      timeout_(spec.timeout) {
  make_current(device_);
  const ncclUniqueId id = agree_on_id(label_, meeting);
  try {
    join(id, spec.max_ctas);
  } catch (...) {
    free_aborted();
    throw;
  }
}

void NcclMembership::join(const ncclUniqueId& id, int max_ctas) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (max_ctas > 0) config.maxCTAs = max_ctas;
  ncclConfig_t parent_config = config;
  parent_config.blocking = 0;
  parent_config.splitShare = 1;
  ncclResult_t status = ncclCommInitRankConfig(&parent_, size_, id, rank_, &parent_config);
  settle("join", parent_, status);
  config.blocking = 1;
  status = ncclCommSplit(parent_, 0, rank_, &child_, &config);
  settle("join", parent_, status);
}

NcclMembership::~NcclMembership() {
  if (aborter_.joinable()) aborter_.join();
  if (parent_) say_goodbye();
  free_aborted();
}

void NcclMembership::say_goodbye() noexcept {
  try {
    run_for(goodbye_limit, [this] {
      ncclResult_t state = ncclCommFinalize(child_);
      if (state == ncclSuccess || state == ncclInProgress) state = wait_for_progress(child_, goodbye_limit);
      state == ncclSuccess ? ncclCommDestroy(child_) : ncclCommAbort(child_);
      child_ = nullptr;
    });
  } catch (const std::exception&) {
    return;  // no thread could be started; the communicator is aborted instead
  }
  if (parent_) destroy_in_time(device_, std::exchange(parent_, nullptr));
}

void NcclMembership::run_in_time(const char* name, const std::function<void()>& work) {
  if (!run_for(timeout_, work)) throw CommError(silence(name));
}

bool NcclMembership::run_for(std::chrono::milliseconds limit, const std::function<void()>& work) {
  std::future<void> done = std::async(std::launch::async, [&] {
    choose_device(device_);
    work();
  });
  if (done.wait_for(limit) == std::future_status::ready) {
    done.get();
    return true;
  }
  ncclCommAbort(std::exchange(parent_, nullptr));
  done.wait();
  return false;
}

void NcclMembership::abort() noexcept {
  if (aborted_.exchange(true)) return;
  // NCCL first raises the flag and then waits until the streams of the communicator's calls are drained. That can take until
  // this rank's other groups are aborted as well, so the caller, who has to abort them, must not wait here.
  try {
    aborter_ = std::thread([this] {
      choose_device(device_);
      free_aborted();
    });
  } catch (const std::exception&) {
    free_aborted();
  }
}

void NcclMembership::free_aborted() noexcept {
  if (parent_) ncclCommAbort(std::exchange(parent_, nullptr));
  ncclComm_t child = nullptr;
  {
    std::lock_guard lock(mutex_);
    child = std::exchange(child_, nullptr);
  }
  // Without the lock: NCCL waits here for the CUDA graphs that contain its calls, and the rank's thread releases them once it
  // has seen that the group is aborted.
  if (child) ncclCommAbort(child);
}

// NCCL_COMM_BLOCKING in the environment overrides a communicator's own setting, so the child's calls may also be in progress.
void NcclMembership::settle(const char* name, ncclComm_t comm, ncclResult_t status) const {
  if (status == ncclSuccess || status == ncclInProgress) status = wait_for_progress(comm, timeout_);
  if (status == ncclInProgress) throw CommError(silence(name));
  if (status != ncclSuccess) fail(name, comm, status);
}

void NcclMembership::check_usable(const char* name) const {
  if (aborted_) throw CommError(label_ + ": " + name + ": aborted");
}

std::string NcclMembership::silence(const char* name) const {
  return label_ + ": " + name + ": a peer did not answer for " + std::to_string(timeout_.count()) +
         " ms: it hangs, is slower than comm.timeout_s, or made another call";
}

void NcclMembership::fail(const char* name, ncclComm_t comm, ncclResult_t status) const {
  check_usable(name);
  throw CommError(label_ + ": " + name + ": NCCL: " + ncclGetErrorString(status) + " (" + ncclGetLastError(comm) +
                  "); set NCCL_DEBUG=WARN in the environment for details");
}

}  // namespace plait::comm
