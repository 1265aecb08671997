#include "comm/backends.h"

#include <nccl.h>
#include <unistd.h>

#include <algorithm>

#include "comm/nccl/membership.h"
#include "comm/nccl_environment.h"
#include "core/error.h"

namespace plait::comm {
namespace {

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::f64: return ncclFloat64;
    case DType::bf16: return ncclBfloat16;
    case DType::i32: return ncclInt32;
    case DType::u8:
    case DType::e4m3: return ncclUint8;  // gathered, never added up
    case DType::f16: return ncclFloat16;
  }
  throw InternalError("NCCL has no such element type");
}

ncclRedOp_t nccl_operation(Reduction reduction) { return reduction == Reduction::sum ? ncclSum : ncclMax; }

std::size_t count_of(const View& view) { return static_cast<std::size_t>(view.elements()); }

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const GroupSpec& spec, Meeting& meeting)
      : rank_(spec.rank),
        size_(spec.size),
        point_to_point_(spec.point_to_point),
        log_begin_(log_.size()),
        membership_(spec, meeting) {
    membership_.run_in_time("join", [&] { connect(spec.device); });
    if (log_.why_unread().empty()) {
      paths_ = read_nccl_log(log_.since(log_begin_), {::getpid(), spec.device.index, rank_, size_});
    } else {
      paths_.unknown = log_.why_unread();
    }
    paths_.by = nccl_backend_name();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce(StreamRef stream, View data, Reduction reduction) override {
    check_reducible(data);
    call("all_reduce", stream, [&](ncclComm_t comm, cudaStream_t native) {
      return ncclAllReduce(data.data, data.data, count_of(data), nccl_type(data.dtype), nccl_operation(reduction), comm,
                           native);
    });
  }

  void reduce_scatter(StreamRef stream, View data, View part, Reduction reduction) override {
    check_reducible(data);
    check_slices(data, part, size_);
    call("reduce_scatter", stream, [&](ncclComm_t comm, cudaStream_t native) {
      return ncclReduceScatter(data.data, part.data, count_of(part), nccl_type(data.dtype), nccl_operation(reduction), comm,
                               native);
    });
  }

  void all_gather(StreamRef stream, View part, View data) override {
    check_slices(data, part, size_);
    call("all_gather", stream, [&](ncclComm_t comm, cudaStream_t native) {
      return ncclAllGather(part.data, data.data, count_of(part), nccl_type(data.dtype), comm, native);
    });
  }

  void all_to_all(StreamRef stream, View send, View receive) override {
    check_all_to_all(send, receive, size_);
    const std::size_t count = count_of(send) / static_cast<std::size_t>(size_);
    const std::size_t slice_bytes = count * size_of(send.dtype);
    const auto slice = [&](const View& view, int peer) {
      return static_cast<std::byte*>(view.data) + static_cast<std::size_t>(peer) * slice_bytes;
    };
    call("all_to_all", stream, [&](ncclComm_t comm, cudaStream_t native) {
      ncclResult_t failure = ncclGroupStart();
      const auto keep = [&failure](ncclResult_t status) {
        if (failure == ncclSuccess && status != ncclInProgress) failure = status;
      };
      for (int peer = 0; peer < size_; ++peer) {
        keep(ncclSend(slice(send, peer), count, nccl_type(send.dtype), peer, comm, native));
        keep(ncclRecv(slice(receive, peer), count, nccl_type(send.dtype), peer, comm, native));
      }
      const ncclResult_t end = ncclGroupEnd();
      return failure == ncclSuccess ? end : failure;
    });
  }

  void send(StreamRef stream, View data, int to) override {
    check_peer(to, rank_, size_, point_to_point_);
    call("send", stream, [&](ncclComm_t comm, cudaStream_t native) {
      if (data.elements() == 0) return ncclSuccess;
      return ncclSend(data.data, count_of(data), nccl_type(data.dtype), to, comm, native);
    });
  }

  void receive(StreamRef stream, View data, int from) override {
    check_peer(from, rank_, size_, point_to_point_);
    call("receive", stream, [&](ncclComm_t comm, cudaStream_t native) {
      if (data.elements() == 0) return ncclSuccess;
      return ncclRecv(data.data, count_of(data), nccl_type(data.dtype), from, comm, native);
    });
  }

  Paths paths() const override { return paths_; }
  void abort() noexcept override { membership_.abort(); }

 private:
  // Makes every kind of call once, so that no important one connects later. NCCL connects when it first needs to: the channels
  // of an algorithm (ring, tree, NVLink SHARP) at the first collective that it chooses that algorithm for, and a pair of ranks
  // at its first message. The host blocks in that call until the peers make theirs, so the ranks of a pipeline, each of which
  // calls in its own order, would wait for each other for good. The sizes for which an algorithm is chosen depend on the
  // machine and cannot be queried, hence the steps. A protocol (LL, LL128, Simple) needs no connection of its own, and a
  // message of any size opens all channels of its pair. NCCL_RUNTIME_CONNECT=0 connects collectives, but not pairs, while
  // joining; but the environment is the user's.
  //
  // An algorithm that is chosen only for larger calls than these still connects later. That is safe where all ranks make their
  // collectives in one order, and abort() ends it.
  void connect(Device device) {
    constexpr std::size_t largest_bytes = 32 << 20;
    DeviceMemory memory(device);
    const Buffer buffer = memory.allocate(largest_bytes);
    const Stream stream(device);
    stream.ref().zero(buffer.data(), buffer.bytes());
    for (std::size_t bytes = 32; bytes <= largest_bytes; bytes *= 16) {
      const std::int64_t part_count = std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes / sizeof(float)) / size_);
      const View data(buffer.data(), DType::f32, {part_count * size_});
      const View part = data.rows(part_count * rank_, part_count);
      all_reduce(stream, data, Reduction::sum);
      reduce_scatter(stream, data, part, Reduction::sum);
      all_gather(stream, part, data);
    }
    if (point_to_point_) {
      // One group of a send and a receive for each pair, which NCCL puts in an order without deadlock.
      const View send(buffer.data(), DType::f32, {size_});
      const View receive(static_cast<float*>(buffer.data()) + size_, DType::f32, {size_});
      all_to_all(stream, send, receive);
    }
    stream.ref().synchronize();
  }

  template <typename Enqueue>
  void call(const char* name, StreamRef stream, Enqueue enqueue) {
    require(stream.device().is_cuda(), "a GPU group needs a stream of a CUDA device");
    membership_.call(name, [&](ncclComm_t comm) { return enqueue(comm, static_cast<cudaStream_t>(stream.native())); });
  }

  const int rank_;
  const int size_;
  const bool point_to_point_;
  const NcclLog log_;
  const std::uint64_t log_begin_;  // after the output of other groups
  NcclMembership membership_;
  Paths paths_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(const GroupSpec& spec, Meeting& meeting) {
  return std::make_unique<NcclCommunicator>(spec, meeting);
}

std::string nccl_backend_name() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) throw CommError("NCCL does not report its version");
  return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace plait::comm
