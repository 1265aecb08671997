#include "comm/gloo/gloo_communicator.h"

#include <cstring>
#include <functional>

#include "comm/contract.h"
#include "comm/gloo/peers.h"
#include "comm/gloo/ring.h"
#include "core/error.h"

namespace plait::comm {
namespace {

// What the stream's tasks need; they keep it alive, so a communicator may go before its last call has run.
struct Group {
  Group(const GroupSpec& spec, Rendezvous& store) : peers(spec, store) {}
  Peers peers;
  std::vector<std::byte> scratch;  // used by one task at a time
};

// FNV-1a over what the ranks of a call must agree on.
std::uint32_t signature_of(const char* name, DType dtype, std::int64_t elements, int extra) {
  std::uint32_t hash = 2166136261u;
  const auto mix = [&hash](std::uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) hash = (hash ^ static_cast<std::uint8_t>(value >> (8 * byte))) * 16777619u;
  };
  for (const char* c = name; *c; ++c) mix(static_cast<std::uint8_t>(*c));
  mix(static_cast<std::uint64_t>(dtype));
  mix(static_cast<std::uint64_t>(elements));
  mix(static_cast<std::uint64_t>(extra));
  return hash;
}

std::byte* bytes_of(const View& view) { return static_cast<std::byte*>(view.data); }

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(const GroupSpec& spec, Rendezvous& store)
      : rank_(spec.rank), size_(spec.size), group_(std::make_shared<Group>(spec, store)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce(StreamRef stream, View data, Reduction reduction) override {
    check_reducible(data);
    enqueue(stream, "all_reduce", data, static_cast<int>(reduction), [=, slices = slices_of(data)](Group& group, CallId call) {
      std::byte* own = bytes_of(data) + slices.offset_bytes(group.peers.rank());
      ring_reduce_scatter(group.peers, call, bytes_of(data), slices, data.dtype, reduction, own, group.scratch);
      ring_all_gather(group.peers, call, bytes_of(data), slices);
    });
  }

  void reduce_scatter(StreamRef stream, View data, View part, Reduction reduction) override {
    check_reducible(data);
    check_slices(data, part, size_);
    enqueue(stream, "reduce_scatter", data, static_cast<int>(reduction), [=, slices = slices_of(data)](Group& group, CallId call) {
      ring_reduce_scatter(group.peers, call, bytes_of(data), slices, data.dtype, reduction, bytes_of(part), group.scratch);
    });
  }

  void all_gather(StreamRef stream, View part, View data) override {
    check_slices(data, part, size_);
    enqueue(stream, "all_gather", data, 0, [=, slices = slices_of(data)](Group& group, CallId call) {
      std::byte* own = bytes_of(data) + slices.offset_bytes(group.peers.rank());
      if (own != part.data && part.bytes() > 0) std::memcpy(own, part.data, part.bytes());
      ring_all_gather(group.peers, call, bytes_of(data), slices);
    });
  }

  void broadcast(StreamRef stream, View data, int root) override {
    check_root(root, size_);
    enqueue(stream, "broadcast", data, root,
            [=](Group& group, CallId call) { tree_broadcast(group.peers, call, bytes_of(data), data.bytes(), root); });
  }

  void all_to_all(StreamRef stream, View send, View receive) override {
    check_all_to_all(send, receive, size_);
    enqueue(stream, "all_to_all", send, 0, [=](Group& group, CallId call) {
      const std::size_t slice_bytes = send.bytes() / static_cast<std::size_t>(group.peers.size());
      pairwise_all_to_all(group.peers, call, bytes_of(send), bytes_of(receive), slice_bytes);
    });
  }

  void abort() noexcept override { group_->peers.close("aborted"); }

 private:
  Slices slices_of(const View& data) const { return {data.elements(), size_, size_of(data.dtype)}; }

  void enqueue(StreamRef stream, const char* name, const View& data, int extra, std::function<void(Group&, CallId)> run) {
    require(!stream.device().is_cuda(), "a host group needs a stream of the host device");
    group_->peers.check_open(name);
    const CallId call{name, ++sequence_, signature_of(name, data.dtype, data.elements(), extra)};
    stream.enqueue_host([group = group_, call, run = std::move(run)] { run(*group, call); });
  }

  const int rank_;
  const int size_;
  std::uint32_t sequence_ = 0;
  std::shared_ptr<Group> group_;
};

}  // namespace

std::unique_ptr<Communicator> make_gloo_communicator(const GroupSpec& spec, Rendezvous& store) {
  return std::make_unique<GlooCommunicator>(spec, store);
}

std::string gloo_backend_name() { return "Gloo"; }

}  // namespace plait::comm
