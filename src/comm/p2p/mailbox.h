// A mailbox carries one direction of messages between two ranks: memory that both see, and four counters.
//
// In place: a message goes straight to the receiver's own buffer. The receiver says when that place is free.
//   sender      announced = n     wait: credit >= n     copy data -> place     ready = n
//   receiver    credit = n        wait: ready >= n        (credit may run ahead: more than one place may be free)
// Through a ring of slots, if the receiver's memory cannot be reached in one hop:
//   sender      announced = n     wait: credit > n - slots     copy data -> slot n % slots     ready = n
//   receiver                      wait: ready >= n             copy slot n % slots -> data     credit = n
// Any copy within one GPU is a kernel and waits until other kernels leave it an SM. That is why messages arrive in place.
// Signals, apart from messages, for data that the sender has put into memory of the receiver that both know to be free:
//   sender      copy data     signalled = n               receiver    wait: signalled >= n
//
// The transport decides where the memory is and how it becomes visible (MailboxMemory); the mover decides who copies. Stream
// write-value and wait-value operations keep the order, so the host is not involved once it has enqueued the work; for a short
// message that a kernel copies, the kernel itself keeps it. A message larger than a slot travels in chunks: one enters the ring
// while another leaves it.
//
// Where ranks share a GPU (Device::shared), nothing on it waits for a counter: the thread that enqueues a wait blocks until the
// write has been enqueued, and its stream then waits for an event (core/enqueued_counters.h).
//
// Each end belongs to one thread, and its calls to one stream or to streams joined by events. Counters count chunks modulo 2^32
// and are never reset.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/p2p/handle_exchange.h"
#include "comm/p2p/link.h"
#include "comm/p2p/mover.h"
#include "core/choices.h"
#include "core/stream.h"
#include "core/view.h"

namespace plait::comm::p2p {

// Parts of a mailbox, as the device of this end addresses them.
struct MailboxMemory {
  std::byte* slots = nullptr;
  std::size_t slot_bytes = 0;  // a multiple of 256
  int slot_count = 0;
  std::vector<std::byte*> places = {};  // in place: by index, and no slots. With neither, only announcements pass
  std::uint32_t* announced = nullptr;   // written by the sender, read by the receiver
  std::uint32_t* ready = nullptr;       // written by the sender, read by the receiver
  std::uint32_t* credit = nullptr;      // written by the receiver, read by the sender
  std::uint32_t* signalled = nullptr;   // written by the sender, read by the receiver
  std::vector<std::shared_ptr<void>> imported, exported;  // keep the memory alive
};

enum class End { sender, receiver };

class Mailbox {
 public:
  // `release_stream`: a stream of this end's device for release_waits(); outlives the mailbox. `by_kernel`: this end copies
  // with an SM kernel instead of the stream's copy, and short messages (link_collectives::longest_short_push) with a kernel
  // that also waits.
  Mailbox(End end, MailboxMemory memory, StreamRef release_stream, bool by_kernel);
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Sender. Tells the receiver that the next message's data is ready, so that from now on the receiver waits only for the wire.
  // Costs one write of the counter.
  void announce(StreamRef stream);
  // Sends `parts`, packed, as one message; in place: to places[place].
  void send(StreamRef stream, std::span<const View> parts, int place = -1);

  // Receiver. Later work on `stream` runs once the next message is announced.
  void await_announcement(StreamRef stream);
  // Receives the next message into `parts`, whose sizes equal the sender's.
  void receive(StreamRef stream, std::span<const View> parts);
  // In place only. post: one more message may come, since its place is free from this point of the stream. await_arrival: later
  // work runs once the next message has arrived. A message is posted before it is awaited; messages may be posted ahead.
  void post(CounterBatch& counters);
  void await_arrival(CounterBatch& counters);
  // Sender, in place, for a message that the caller copies. await_place: later work runs once the next message's place is free.
  // mark_sent: the message is there.
  void await_place(CounterBatch& counters);
  void mark_sent(CounterBatch& counters);
  // Both of these and the copy to places[place], for copy_between_counters.
  CountedCopy counted_copy(const void* data, std::size_t bytes, int place);
  // Signals, counted apart from messages. Sender: the data copied before is there. next_signal: the value for a kernel to set.
  void signal(CounterBatch& counters);
  CounterValue next_signal();
  void await_signal(CounterBatch& counters);             // the receiver
  bool is_posted() const { return posted_ != chunks_; }  // the next message to be awaited is posted
  bool in_place() const { return !memory_.places.empty(); }
  // Bytes that may be sent before anything is received; in place, as many as the places hold.
  std::size_t holds() const {
    return in_place() ? std::numeric_limits<std::size_t>::max()
                      : memory_.slot_bytes * static_cast<std::size_t>(memory_.slot_count);
  }
  std::byte* place(int index) const { return memory_.places.at(static_cast<std::size_t>(index)); }

  // Releases the peer's memory; nothing may be sent or received afterwards.
  void drop_imported() { memory_.imported.clear(); }

  // Ends the waits that this end's streams are in or will reach. Data copied by a device after that is invalid; host streams
  // fail behind the wait. Call it from any thread, repeatedly until the streams are drained: a peer that still writes could
  // undo it.
  void release_waits() noexcept;

 private:
  enum class Direction { into_slot, out_of_slot };
  void await(StreamRef stream, const std::uint32_t* counter, std::uint32_t value) const;
  // Waits, copies bytes [first, first + bytes) of the parts to or from `slot` and then sets the counter.
  void pass_chunk(StreamRef stream, CounterValue awaited, std::span<const View> parts, std::size_t first, std::size_t bytes,
                  std::byte* slot, Direction direction, CounterValue counter) const;
  std::byte* current_slot() const { return memory_.slots + static_cast<std::size_t>(next_slot_) * memory_.slot_bytes; }

  MailboxMemory memory_;
  const End end_;
  const bool by_kernel_;
  const StreamRef release_stream_;           // writes the counters that this end waits for, while its other streams are stuck
  std::atomic<std::uint32_t> announced_{0};  // messages so far
  std::atomic<std::uint32_t> chunks_{0};     // chunks so far
  std::atomic<std::uint32_t> signals_{0};    // so far
  std::uint32_t posted_ = 0;                 // in place: messages allowed to come
  int next_slot_ = 0;
  const std::shared_ptr<std::atomic<bool>> released_ = std::make_shared<std::atomic<bool>>(false);
};

// Builds a mailbox's memory from regions, for each transport.

struct MailboxSpec {
  std::string name;                         // unique in the job; both ends give the same
  Transport transport = Transport::direct;  // not nccl
  Mover mover = Mover::copy_engine;
  std::size_t message_bytes = 0;   // of the largest message; 0: announcements only
  int slots = 2;                   // messages on their way at once, if a message fits a slot
  std::vector<Place> places = {};  // instead of slots, if arrives_in_place()
  Device device;                   // of this end
  Device peer_device;              // of the other one, if that is in this process
  bool fabric = false;             // vmm by fabric handles: both ends' machines allow them
  std::optional<Device> bridge;    // relay: the GPU in between, as the receiver's process numbers it
};

// True if one copy brings a message from the sender's memory to the receiver's; otherwise it stops in memory of the host or of
// a third GPU.
bool takes_one_hop(Transport transport);

// True if messages can be put straight into the receiver's memory: the sender moves them, and in one hop.
bool arrives_in_place(Transport transport, Mover mover, DeviceKind kind);

// Collective over the two ends. The slots are in the receiver's memory (sm_read: the sender's; relay: the bridge's; host: the
// host's), each counter in the memory of the end that waits for it (relay and host: the host's).
MailboxMemory make_mailbox_memory(End end, const MailboxSpec& spec, HandleExchange& exchange);

}  // namespace plait::comm::p2p
