// Groups in which this rank is alone: a group of one, and a larger one whose other ranks do not exist.
#include <atomic>

#include "comm/backends.h"
#include "comm/communicator.h"
#include "comm/p2p/mover.h"
#include "core/error.h"

namespace plait::comm {
namespace {

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::string name, int rank, int size) : name_(std::move(name)), rank_(rank), size_(size) {
    require(size >= 1 && rank >= 0 && rank < size, "LocalCommunicator: a rank of the group");
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce(StreamRef, View data, Reduction) override {
    check_usable();
    check_reducible(data);
  }
  void reduce_scatter(StreamRef stream, View data, View part, Reduction) override {
    copy(stream, part.data, own_slice(data, part).data, part.bytes());
  }
  std::vector<View> reduce_scatter_addends(StreamRef, View data, View part) override { return {own_slice(data, part)}; }
  void all_gather(StreamRef stream, View part, View data) override {
    check_usable();
    check_slices(data, part, size_);
    if (part.bytes() == 0) return;
    if (size_ == 1) return copy(stream, data.data, part.data, part.bytes());
    std::vector<p2p::Copy> copies;
    const auto copy_them = [&] { p2p::copy_all(stream, copies), copies.clear(); };
    for (int index = 0; index < size_; ++index) {
      std::byte* const to = slice(data, part.bytes(), index);
      if (to != part.data) copies.push_back({to, part.data, part.bytes()});
      if (copies.size() == p2p::most_copies) copy_them();
    }
    copy_them();
  }
  void all_to_all(StreamRef stream, View send, View receive) override {
    check_usable();
    check_all_to_all(send, receive, size_);
    copy(stream, receive.data, send.data, send.bytes());
  }
  void send(StreamRef, View, int) override { throw InternalError("group '" + name_ + "': there is no peer to send to"); }
  void receive(StreamRef, View, int) override {
    throw InternalError("group '" + name_ + "': there is no peer to receive from");
  }
  Paths paths() const override { return {}; }
  void abort() noexcept override { aborted_ = true; }

 private:
  void check_usable() const {
    if (aborted_)
      throw CommError("group '" + name_ + "', rank " + std::to_string(rank_) + " of " + std::to_string(size_) + ": aborted");
  }
  static std::byte* slice(const View& data, std::size_t bytes, int index) {
    return static_cast<std::byte*>(data.data) + bytes * static_cast<std::size_t>(index);
  }
  View own_slice(const View& data, const View& part, Where where = Where::current()) const {
    check_usable();
    check_reducible(data, where);
    check_slices(data, part, size_, where);
    return {slice(data, part.bytes(), rank_), part.dtype, part.shape};
  }
  static void copy(StreamRef stream, void* to, const void* from, std::size_t bytes) {
    if (to != from && bytes > 0) stream.copy(to, from, bytes);
  }

  const std::string name_;
  const int rank_, size_;
  std::atomic<bool> aborted_{false};
};

}  // namespace

std::unique_ptr<Communicator> make_single_rank_communicator(const GroupSpec& spec) {
  return std::make_unique<LocalCommunicator>(spec.name, 0, 1);
}

std::unique_ptr<Communicator> make_absent_communicator(int rank, int size) {
  return std::make_unique<LocalCommunicator>("absent", rank, size);
}

}  // namespace plait::comm
