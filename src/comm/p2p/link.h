// Carries one rank's messages to another, through a mailbox or the communication library's send and receive. The choice is made
// at start-up and tested before use.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/p2p/choice.h"
#include "comm/p2p/facts.h"
#include "comm/p2p/mover.h"
#include "comm/rendezvous.h"
#include "core/choices.h"
#include "core/stream.h"
#include "core/view.h"

namespace plait::comm::p2p {

// Identifies a place by its owner's buffer; both ends of a link use it.
struct PlaceId {
  int kind = 0, index = 0, slot = 0;  // in the owner's terms, each at least 0
  friend bool operator==(const PlaceId&, const PlaceId&) = default;
};

// A buffer of the receiver in which messages arrive without a further copy.
struct Place {
  PlaceId id;
  std::size_t bytes = 0;
  std::size_t message_offset = 0;  // a message begins here
  friend bool operator==(const Place&, const Place&) = default;
};

// The resources that the links of one owner share on this rank, so that many links take no more streams and no more time to go
// than one. Outlives them. Made with the device current; used by one thread, and by aborts.
//
// A link that is destroyed waits for its other end, `time_to_go` at most. So do links that were only tried at start-up. The
// time is shared from begin_to_go() on, which the owner calls before it destroys its links.
class SharedByLinks {
 public:
  explicit SharedByLinks(Device device, std::chrono::milliseconds time_to_go = std::chrono::milliseconds(2'000))
      : release_stream_(device, StreamPriority::high), time_to_go_(time_to_go) {}
  StreamRef release_stream() const { return release_stream_; }  // for Mailbox, whose writes never wait
  void begin_to_go();
  std::chrono::milliseconds left_to_go() const;  // for the next link that goes; all of it before begin_to_go()
  int& relayed_by(const std::string& bus_id) { return relayed_by_[bus_id]; }  // links that a third GPU relays for

 private:
  std::map<std::string, int> relayed_by_;
  Stream release_stream_;
  const std::chrono::milliseconds time_to_go_;
  std::optional<std::chrono::steady_clock::time_point> gone_by_;
};

struct LinkSpec {
  std::string name = {};  // unique among the job's links; both ends give the same
  int from = 0, to = 1;   // ranks of the job; this rank is one of them
  int rank = 0;
  Device device;                            // this end's, current on the calling thread
  std::size_t message_bytes = 0;            // of the largest message; both ends give the same
  std::optional<Transport> transport = {};  // nullopt: the best that works
  PeerAccessUse peer_access = PeerAccessUse::automatic;
  std::optional<Mover> mover = {};  // nullopt: the fastest in a trial at the size of the messages
  int slots = 2;                    // messages in transit at once, if they are copied out of slots
  // Receiver: buffers that the link makes and in which messages arrive. Empty: messages are copied.
  std::vector<Place> places = {};
  // The sender announces when a message is ready to travel, so the receiver can tell a late sender from a slow wire.
  bool announce = true;
  std::chrono::milliseconds timeout{60'000};
  int max_ctas = 0;  // of NCCL's send and receive
  std::string host_interface = "127.0.0.1";
  std::shared_ptr<SharedByLinks> shared = {};  // null: this link has its own
};

// A transport that would be better than the chosen one, and why it is not used.
struct PassedOver {
  Transport transport = Transport::direct;
  std::string reason;
};

// The choices made for a pair; the same on both ends.
struct LinkReport {
  int from = 0, to = 0;
  PairFacts facts;
  Transport transport = Transport::nccl;
  Mover mover = Mover::copy_engine;
  std::string bridge;  // relay: bus id of the GPU in between
  std::vector<PassedOver> better;
  Paths paths = {};               // of the pair, by ranks of the job
  double trial_microseconds = 0;  // of one message of the largest size
  double trial_gb_per_s = 0;
};

class Link {
 public:
  // Everything enqueued on either end must have run. The last end to be destroyed frees memory of both GPUs; cudaFree waits for
  // work still running there, and meanwhile no other thread can give these GPUs work.
  virtual ~Link() = default;
  // The `from` end sends and the `to` end receives. Messages arrive in the order in which they are sent; sizes must agree. The
  // event `announced`, if given, completes once the sender has the message ready to travel (at once if the link does not
  // announce; see announces()). `place` is the index in places() of the buffer that the message goes to. The receiver's `data`
  // lies in that buffer, which must be free when the stream reaches the receive. `place` is ignored if places() is empty.
  virtual void send(StreamRef stream, View data, int place = -1) = 0;
  virtual void receive(StreamRef stream, View data, Event* announced = nullptr, int place = -1) = 0;
  // Receiver with places: says that from this point of the stream the place of the next message not yet posted is free. For
  // callers that know this before they reach the receive; a receive posts its own message if that has not been done.
  void post(StreamRef stream);
  // With places: the parts of send, receive and post that concern the next message's counters, for a caller that handles many
  // links at once. Sender: waits until its place is free; the caller copies the message there; then marks it sent. Receiver:
  // says that its place is free; waits for the message.
  virtual void await_place(CounterBatch& counters) = 0;
  virtual void mark_sent(CounterBatch& counters) = 0;
  // Sender with places: await_place, the copy of the next message to places()[place], and mark_sent in one, for
  // copy_between_counters.
  virtual CountedCopy counted_copy(const void* data, std::size_t bytes, int place) = 0;
  virtual void post(CounterBatch& counters) = 0;
  virtual void await_arrival(CounterBatch& counters) = 0;
  // Signals, independent of messages, with places: the sender has copied data into other memory of the receiver, which both
  // know to be free, and says so; a kernel does that with next_signal's value. The receiver waits for it. Signals match in
  // order.
  virtual void signal(CounterBatch& counters) = 0;
  virtual CounterValue next_signal() = 0;
  virtual void await_signal(CounterBatch& counters) = 0;
  // The receiver's LinkSpec::places, on both ends; empty if the transport copies.
  virtual const std::vector<Place>& places() const = 0;
  virtual std::byte* memory_of(int place) const = 0;  // as this end addresses it
  // False if LinkSpec::announce is false, or if the ends share no memory: on two hosts, or in two network namespaces of one.
  virtual bool announces() const = 0;
  // Bytes of messages that travel before their receive is reached: with places, a message in each, of any size. 0 if a send
  // waits for its receive.
  virtual std::size_t holds() const = 0;
  // Releases everything that waits on this end (data received after that is invalid) and makes later calls throw CommError.
  // From any thread.
  virtual void abort() noexcept = 0;
  virtual const LinkReport& report() const { return report_; }

 private:
  friend std::unique_ptr<Link> make_link(const LinkSpec& spec, Rendezvous& store);
  LinkReport report_;
};

// Collective over the two ends. All ranks make their links in the same order, and destroy them in the same order too, since the
// ends then wait for each other again. Tests each candidate with messages whose pattern reveals corruption. A transport that
// delivers wrong data is passed over, or is an error if it was asked for by name. CommError when the peer does not arrive;
// NoTransport when the facts or the trials leave no transport.
std::unique_ptr<Link> make_link(const LinkSpec& spec, Rendezvous& store);

// A function that makes links as make_link does.
using LinkMaker = std::function<std::unique_ptr<Link>(const LinkSpec&, Rendezvous&)>;

// "0 -> 1  NV18 (switch)  direct, copy engine  381 GB/s ...", for the table at start-up: one line per link, then the reasons
// against better transports.
std::string describe(const LinkReport& report);

}  // namespace plait::comm::p2p
