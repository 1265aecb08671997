#include "comm/nccl/nccl_communicator.h"

#include <nccl.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include "comm/contract.h"
#include "core/error.h"

namespace plait::comm {
namespace {

using Clock = std::chrono::steady_clock;

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::f64: return ncclFloat64;
    case DType::bf16: return ncclBfloat16;
    case DType::i32: return ncclInt32;
    case DType::u8: return ncclUint8;
  }
  throw InternalError("NCCL has no such element type");
}

ncclRedOp_t nccl_operation(Reduction reduction) { return reduction == Reduction::sum ? ncclSum : ncclMax; }

std::size_t count_of(const View& view) { return static_cast<std::size_t>(view.elements()); }

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const GroupSpec& spec, Rendezvous& store)
      : label_("group '" + spec.name + "', rank " + std::to_string(spec.rank) + " of " + std::to_string(spec.size)),
        rank_(spec.rank),
        size_(spec.size),
        timeout_(spec.timeout) {
    make_current(spec.device);
    const ncclUniqueId id = agree_on_id(spec, store);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // so that a missing peer ends in a timeout, and abort() can come from another thread
    if (spec.max_ctas > 0) config.maxCTAs = spec.max_ctas;
    try {
      std::unique_lock lock(mutex_);
      finish(lock, "join", ncclCommInitRankConfig(&comm_, size_, id, rank_, &config));
    } catch (...) {
      abort();
      throw;
    }
  }

  // The caller has drained the streams of its calls. Peers may be gone already, so the goodbye has a time limit.
  ~NcclCommunicator() override {
    std::lock_guard lock(mutex_);
    if (!comm_) return;
    ncclResult_t state = ncclCommFinalize(comm_);
    const auto deadline = Clock::now() + std::chrono::seconds(5);
    while (state == ncclInProgress && Clock::now() < deadline) {
      std::this_thread::yield();
      if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) break;
    }
    if (state == ncclSuccess) {
      ncclCommDestroy(comm_);
    } else {
      ncclCommAbort(comm_);
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce(StreamRef stream, View data, Reduction reduction) override {
    check_reducible(data);
    call("all_reduce", stream, [&](cudaStream_t native) {
      return ncclAllReduce(data.data, data.data, count_of(data), nccl_type(data.dtype), nccl_operation(reduction), comm_, native);
    });
  }

  void reduce_scatter(StreamRef stream, View data, View part, Reduction reduction) override {
    check_reducible(data);
    check_slices(data, part, size_);
    call("reduce_scatter", stream, [&](cudaStream_t native) {
      return ncclReduceScatter(data.data, part.data, count_of(part), nccl_type(data.dtype), nccl_operation(reduction), comm_, native);
    });
  }

  void all_gather(StreamRef stream, View part, View data) override {
    check_slices(data, part, size_);
    call("all_gather", stream, [&](cudaStream_t native) {
      return ncclAllGather(part.data, data.data, count_of(part), nccl_type(data.dtype), comm_, native);
    });
  }

  void broadcast(StreamRef stream, View data, int root) override {
    check_root(root, size_);
    call("broadcast", stream, [&](cudaStream_t native) {
      return ncclBroadcast(data.data, data.data, count_of(data), nccl_type(data.dtype), root, comm_, native);
    });
  }

  void all_to_all(StreamRef stream, View send, View receive) override {
    check_all_to_all(send, receive, size_);
    const std::size_t count = count_of(send) / static_cast<std::size_t>(size_);
    const std::size_t slice_bytes = count * size_of(send.dtype);
    const auto slice = [&](const View& view, int peer) {
      return static_cast<std::byte*>(view.data) + static_cast<std::size_t>(peer) * slice_bytes;
    };
    call("all_to_all", stream, [&](cudaStream_t native) {
      ncclResult_t failure = ncclGroupStart();
      const auto keep = [&failure](ncclResult_t status) {
        if (failure == ncclSuccess && status != ncclInProgress) failure = status;
      };
      for (int peer = 0; peer < size_; ++peer) {
        keep(ncclSend(slice(send, peer), count, nccl_type(send.dtype), peer, comm_, native));
        keep(ncclRecv(slice(receive, peer), count, nccl_type(send.dtype), peer, comm_, native));
      }
      const ncclResult_t end = ncclGroupEnd();
      return failure == ncclSuccess ? end : failure;
    });
  }

  void abort() noexcept override {
    aborted_ = true;  // first, so that a call polling for NCCL's progress lets go
    std::lock_guard lock(mutex_);
    if (comm_) ncclCommAbort(comm_);
    comm_ = nullptr;
  }

 private:
  ncclUniqueId agree_on_id(const GroupSpec& spec, Rendezvous& store) const {
    const std::string key = spec.name + "/nccl/id";
    ncclUniqueId id;
    try {
      if (rank_ == 0) {
        if (const ncclResult_t status = ncclGetUniqueId(&id); status != ncclSuccess) fail("join", status);
        store.set(key, std::string(id.internal, sizeof id.internal));
        return id;
      }
      const std::string value = store.get(key, timeout_);
      require(value.size() == sizeof id.internal, "the NCCL id in the rendezvous has the wrong size");
      std::memcpy(id.internal, value.data(), sizeof id.internal);
      return id;
    } catch (const CommError& error) {
      throw CommError(label_ + ": cannot join: " + error.what());
    }
  }

  template <typename Enqueue> void call(const char* name, StreamRef stream, Enqueue enqueue) {
    require(stream.device().is_cuda(), "a GPU group needs a stream of a CUDA device");
    std::unique_lock lock(mutex_);
    check_usable(name);
    ncclResult_t earlier = ncclSuccess;
    if (ncclCommGetAsyncError(comm_, &earlier) == ncclSuccess && earlier != ncclSuccess && earlier != ncclInProgress) {
      fail(name, earlier);
    }
    finish(lock, name, enqueue(static_cast<cudaStream_t>(stream.native())));
  }

  // A communicator that does not block may still be at work when a call returns (at the first ones, which connect peers), and
  // nothing else may touch it until it is done. Lets go of `lock` between looks, so that abort() can step in.
  void finish(std::unique_lock<std::mutex>& lock, const char* name, ncclResult_t status) {
    const auto deadline = Clock::now() + timeout_;
    while (status == ncclInProgress) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
      check_usable(name);
      if (const ncclResult_t asked = ncclCommGetAsyncError(comm_, &status); asked != ncclSuccess) status = asked;
      if (status == ncclInProgress && Clock::now() >= deadline) {
        throw CommError(label_ + ": " + name + ": a peer did not answer for " + std::to_string(timeout_.count()) +
                        " ms: it hangs, is slower than comm.timeout_s, or made another call");
      }
    }
    if (status != ncclSuccess) fail(name, status);
  }

  void check_usable(const char* name) const {
    if (aborted_ || !comm_) throw CommError(label_ + ": " + name + ": aborted");
  }

  [[noreturn]] void fail(const char* name, ncclResult_t status) const {
    throw CommError(label_ + ": " + name + ": NCCL: " + ncclGetErrorString(status) + " (" + ncclGetLastError(comm_) +
                    "); NCCL_DEBUG=WARN in the environment tells more");
  }

  const std::string label_;
  const int rank_;
  const int size_;
  const std::chrono::milliseconds timeout_;
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;  // guards comm_: abort() frees it
  ncclComm_t comm_ = nullptr;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(const GroupSpec& spec, Rendezvous& store) {
  return std::make_unique<NcclCommunicator>(spec, store);
}

std::string nccl_backend_name() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) throw CommError("NCCL does not tell its version");
  return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
}

}  // namespace plait::comm
