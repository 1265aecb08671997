// Collectives over links: every rank pushes to each other rank the part that it needs, and adds up the parts it receives.
//
// A sum over N ranks: each rank owns a slice; the others push theirs to it, and it adds them in rank order, in fp32. So the
// result is the same on every run, in any order of arrival. A gather: each rank pushes its part to all. Copy engines push long
// data, which leaves all SMs to concurrent computation, to one rank after the other; a kernel pushes short data to all at once.
// Kernels then add the received data or copy them to their destination. A very short sum is a single kernel. An all-reduce is a
// sum and a gather and moves as many bytes as a ring does, in two hops instead of 2 (N - 1).
//
// Links have to hold pushed data until it is taken, so links by the library's send and receive (Transport::nccl) cannot be
// used.
//
// Received data waits in memory of the links until it has been added or copied to its destination. A link has two places, which
// messages use in turn, so that one may travel while the other is used. Larger data goes in pieces. A gather into symmetric
// memory (region.h) that is known to be free needs no landing place: the data is pushed to its destination, and
// signalled.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/p2p/link.h"
#include "comm/p2p/region.h"
#include "comm/rendezvous.h"
#include "core/choices.h"
#include "core/collective.h"

namespace plait::comm::p2p {

struct LinkCommunicatorSpec {
  std::string setting = "comm.exchanges";  // the key that asks for links here: errors name it
  GroupSpec group;
  std::vector<int> members;         // ranks of the job, group.size of them, in the order of the group
  std::size_t symmetric_bytes = 0;  // the same on all
  std::size_t slice_bytes = 0;      // the largest piece sent at once; less where a link holds less
  std::size_t longest_by_kernel = link_collectives::longest_short_push;  // bytes of a push to each other rank; GPUs only
  std::function<std::optional<Transport>(int from, int to)> transport = [](int, int) { return std::nullopt; };
  PeerAccessUse peer_access = PeerAccessUse::automatic;
  LinkMaker make_link = p2p::make_link;
};

class LinkCommunicator final : public Communicator {
 public:
  // Collective over the group. All ranks make their groups and links in one order, and destroy them in it, once all of them
  // have completed their enqueued work or have aborted. CommError on all ranks when the facts of some pair rule out its links,
  // when a link turned out to hold nothing, or for more than link_collectives::most_ranks ranks; on the two ends when the
  // trials left no transport. All of them name the setting. Loads the kernels that it uses: when CUDA loads one it waits for
  // all work of its GPU, holding a lock that every copy to the GPU needs, and some of that work may wait for a push.
  LinkCommunicator(const LinkCommunicatorSpec& spec, Rendezvous& store);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  void all_reduce(StreamRef stream, View data, Reduction reduction) override;
  void reduce_scatter(StreamRef stream, View data, View part, Reduction reduction) override;
  std::vector<View> reduce_scatter_addends(StreamRef stream, View data,
                                           View part) override;  // every rank's part, if sent in one piece
  void release_addends(StreamRef stream) override;
  void all_gather(StreamRef stream, View part, View data) override;
  void all_gather_into_free(StreamRef stream, View part, View data) override;  // at one offset of symmetric memory
  void all_to_all(StreamRef stream, View send, View receive) override;
  void send(StreamRef stream, View data, int to) override;       // InternalError, as in any group made for collectives
  void receive(StreamRef stream, View data, int from) override;  // likewise
  Paths paths() const override;
  void abort() noexcept override;

  std::vector<LinkReport> reports() const;  // of the links from this rank
  // Bytes of the device used for landing places and for the symmetric memory.
  std::size_t linked_bytes() const { return landing_bytes_ + symmetric_bytes_; }
  // This rank's part of the symmetric memory, for the caller's use, zero at first; null if none was requested. The others can
  // write to it only if all ranks reach each other by one transport that allows it; otherwise gathers into it go through
  // landing places.
  std::byte* symmetric_memory() const;

  // While set, nothing is exchanged: this rank's data stand in for everyone's, so that a sum is `size()` times them and zeros
  // stay zero. Set it on all ranks at the same calls.
  void set_alone(bool alone) { alone_ = alone; }
  // Replaces the specification's value from here on.
  void set_longest_by_kernel(std::size_t bytes) { longest_by_kernel_ = bytes; }

 private:
  // The links to and from another rank; none of this rank itself.
  struct Peer {
    Link *to = nullptr, *from = nullptr;
    std::vector<std::byte*> landing;  // by place
    Buffer copied;                    // where messages come by slots: the only landing place
    std::uint64_t sent = 0, received = 0;
    int untold = 0;       // free places of which the sender has not been told yet
    bool in_use = false;  // the place of the last message
  };
  // The links in the order in which both ends make and destroy them, all within one time limit.
  struct Links {
    explicit Links(Device device) : shared(std::make_shared<SharedByLinks>(device)) {}
    ~Links();
    const std::shared_ptr<SharedByLinks> shared;
    std::vector<std::unique_ptr<Link>> list;
  };
  struct Range {
    std::size_t first = 0, bytes = 0;
  };
  // The bytes of some data that belong to a rank.
  using Ranges = std::function<Range(int rank)>;

  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  // The piece `piece` of a range: the same numbers on both ends.
  Range piece_of(const Range& range, std::size_t piece) const;
  std::size_t pieces(const Ranges& ranges) const;
  template <typename Do>
  void for_each_other(Do act);  // each rank with another one first
  template <typename Do>
  void for_each_arrival(Do act);
  void agree_on_slices(const LinkCommunicatorSpec& spec, Rendezvous& store);
  // One piece of a collective: sends every other rank its part, `piece(rank)`, and waits for theirs, of `arriving(rank)` bytes.
  // Returns where the parts lie, by rank, with `own` for this one's; valid until release().
  struct Piece {
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  template <typename PieceFor, typename BytesFrom>
  std::vector<const std::byte*> trade(StreamRef stream, PieceFor piece, BytesFrom arriving, const std::byte* own);
  void release();
  // For links with places: the place of the next message to this rank, and that message as a kernel pushes it, together with
  // the news of places that have become free.
  static int next_place(Peer& p);
  static CountedCopy push(Peer& p, const Piece& piece);
  // The landing place of the next message from this rank, once `counters` have waited for it.
  static const std::byte* next_landing(Peer& p, CounterBatch& counters);
  // Tells the other end of the places that have become free. It waits for them in its next call but one at the earliest.
  static CounterBatch take_free_posts(Peer& p);
  // The choice between copy engines and one kernel that pushes to all others at once.
  bool is_by_kernel(StreamRef stream, std::size_t bytes) const;
  void push_by_kernel(StreamRef stream, std::span<const CountedCopy> copies, std::size_t longest);
  void make_symmetric_memory(const LinkCommunicatorSpec& spec, Rendezvous& store);
  // Reduces by one kernel, with every rank getting all data of the others. False if that is not possible.
  bool reduce_at_once(StreamRef stream, View data, Reduction reduction);
  void add_up(StreamRef stream, View data, std::byte* out, const Ranges& ranges, Reduction reduction);
  // This rank's range is at `own`; the others' go to `data` + first.
  void collect(StreamRef stream, const std::byte* own, std::byte* data, const Ranges& ranges);

  const int rank_;
  std::size_t slice_bytes_;
  std::size_t longest_by_kernel_;
  std::size_t landing_bytes_ = 0;
  const std::size_t symmetric_bytes_;
  bool alone_ = false;
  DeviceMemory memory_;
  Buffer blocks_done_;       // for copy_between_counters; GPUs only
  std::vector<Peer> peers_;  // by rank of the group
  Links links_;
  std::optional<SymmetricMemory> symmetric_;
  Buffer unshared_;  // replaces it if the others cannot write to it
};

}  // namespace plait::comm::p2p
