#include "comm/backends.h"

#include <gloo/config.h>

#include <cstring>
#include <functional>

#include "comm/gloo/peers.h"
#include "comm/gloo/ring.h"
#include "core/error.h"

namespace plait::comm {
namespace {

// State of the stream's tasks. They keep it alive, so a communicator may be destroyed before its last call has run.
struct HostGroup {
  HostGroup(const GroupSpec& spec, Meeting& meeting) : peers(spec, meeting) {}
  Peers peers;
  std::vector<std::byte> scratch;  // used by one task at a time
};

// FNV-1a over everything the ranks of a call must agree on.
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
  GlooCommunicator(const GroupSpec& spec, Meeting& meeting)
      : rank_(spec.rank),
        size_(spec.size),
        point_to_point_(spec.point_to_point),
        sent_(static_cast<std::size_t>(spec.size)),
        received_(static_cast<std::size_t>(spec.size)),
        group_(std::make_shared<HostGroup>(spec, meeting)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce(StreamRef stream, View data, Reduction reduction) override {
    check_reducible(data);
    enqueue(stream, "all_reduce", data, static_cast<int>(reduction),
            [=, slices = slices_of(data)](HostGroup& group, CallId call) {
              std::byte* own = bytes_of(data) + slices.offset_bytes(group.peers.rank());
              ring_reduce_scatter(group.peers, call, bytes_of(data), slices, data.dtype, reduction, own, group.scratch);
              ring_all_gather(group.peers, call, bytes_of(data), slices);
            });
  }

  void reduce_scatter(StreamRef stream, View data, View part, Reduction reduction) override {
    check_reducible(data);
    check_slices(data, part, size_);
    enqueue(stream, "reduce_scatter", data, static_cast<int>(reduction),
            [=, slices = slices_of(data)](HostGroup& group, CallId call) {
              ring_reduce_scatter(group.peers, call, bytes_of(data), slices, data.dtype, reduction, bytes_of(part),
                                  group.scratch);
            });
  }

  void all_gather(StreamRef stream, View part, View data) override {
    check_slices(data, part, size_);
    enqueue(stream, "all_gather", data, 0, [=, slices = slices_of(data)](HostGroup& group, CallId call) {
      std::byte* own = bytes_of(data) + slices.offset_bytes(group.peers.rank());
      if (own != part.data && part.bytes() > 0) std::memcpy(own, part.data, part.bytes());
      ring_all_gather(group.peers, call, bytes_of(data), slices);
    });
  }

  void all_to_all(StreamRef stream, View send, View receive) override {
    check_all_to_all(send, receive, size_);
    enqueue(stream, "all_to_all", send, 0, [=](HostGroup& group, CallId call) {
      const std::size_t slice_bytes = send.bytes() / static_cast<std::size_t>(group.peers.size());
      pairwise_all_to_all(group.peers, call, bytes_of(send), bytes_of(receive), slice_bytes);
    });
  }

  void send(StreamRef stream, View data, int to) override {
    check_peer(to, rank_, size_, point_to_point_);
    enqueue_message(stream, "send", data, sent_[static_cast<std::size_t>(to)], [=](HostGroup& group, CallId call) {
      group.peers.exchange(call, to, data.data, data.bytes(), group.peers.rank(), nullptr, 0);
    });
  }

  void receive(StreamRef stream, View data, int from) override {
    check_peer(from, rank_, size_, point_to_point_);
    enqueue_message(stream, "receive", data, received_[static_cast<std::size_t>(from)], [=](HostGroup& group, CallId call) {
      group.peers.exchange(call, group.peers.rank(), nullptr, 0, from, data.data, data.bytes());
    });
  }

  Paths paths() const override {
    Paths paths{.by = gloo_backend_name(), .pairs = {}, .algorithms = {"ring"}};
    for (int to = 0; to < size_; ++to) {
      if (to != rank_) paths.pairs.push_back({rank_, to, Carrier::net, "TCP"});
    }
    return paths;
  }
  void abort() noexcept override { group_->peers.close("aborted"); }

 private:
  Slices slices_of(const View& data) const { return {data.elements(), size_, size_of(data.dtype)}; }

  using Run = std::function<void(HostGroup&, CallId)>;

  // A collective, which all ranks of the group call.
  void enqueue(StreamRef stream, const char* name, const View& data, int extra, Run run) {
    enqueue(stream, {name, 0, signature_of(name, data.dtype, data.elements(), extra)}, collectives_, std::move(run));
  }

  // A message involves two ranks and is counted by itself: the other ranks of the group do not know of it.
  void enqueue_message(StreamRef stream, const char* name, const View& data, std::uint32_t& messages, Run run) {
    const std::uint32_t signature = signature_of("message", DType::u8, static_cast<std::int64_t>(data.bytes()), 0);
    enqueue(stream, {name, 0, signature}, messages, std::move(run));
  }

  void enqueue(StreamRef stream, CallId call, std::uint32_t& count, Run run) {
    require(!stream.device().is_cuda(), "a host group needs a stream of the host device");
    group_->peers.check_open(call.name);
    call.sequence = ++count;
    stream.enqueue_host([group = group_, call, run = std::move(run)] { run(*group, call); });
  }

  const int rank_;
  const int size_;
  const bool point_to_point_;
  std::uint32_t collectives_ = 0;
  std::vector<std::uint32_t> sent_, received_;  // messages, by peer
  std::shared_ptr<HostGroup> group_;
};

}  // namespace

std::unique_ptr<Communicator> make_gloo_communicator(const GroupSpec& spec, Meeting& meeting) {
  return std::make_unique<GlooCommunicator>(spec, meeting);
}

std::string gloo_backend_name() {
  return "Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) + "." +
         std::to_string(GLOO_VERSION_PATCH);
}

}  // namespace plait::comm
