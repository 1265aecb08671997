#include "comm/p2p/mailbox.h"

#include <algorithm>
#include <iterator>

#include "comm/p2p/region.h"
#include "core/collective.h"
#include "core/error.h"

namespace plait::comm::p2p {
namespace {

// Added to a counter, it exceeds every wait in a stream's queue; it is less than half the circle of counters.
constexpr std::uint32_t past_every_wait = 1u << 30;

std::size_t size_of_all(std::span<const View> parts) {
  std::size_t bytes = 0;
  for (const View& part : parts) bytes += part.bytes();
  return bytes;
}

}  // namespace

Mailbox::Mailbox(End end, MailboxMemory memory, StreamRef release_stream, bool by_kernel)
    : memory_(std::move(memory)), end_(end), by_kernel_(by_kernel), release_stream_(release_stream) {
  require(memory_.announced && memory_.ready && memory_.credit && memory_.signalled, "Mailbox: a counter is missing");
  if (by_kernel_) load_copying_kernels();
  require(memory_.slot_count == 0 || (memory_.slots && memory_.slot_bytes > 0), "Mailbox: its slots have no memory");
}

Mailbox::~Mailbox() {
  if (!*released_) return;
  try {
    release_stream_.synchronize();  // before the memory goes
  } catch (const std::exception&) {
    return;  // the device is lost
  }
}

void Mailbox::await(StreamRef stream, const std::uint32_t* counter, std::uint32_t value) const {
  CounterBatch counters;
  counters.wait(counter, value, released_);
  counters.enqueue(stream);
}

void Mailbox::announce(StreamRef stream) { stream.write_value(memory_.announced, ++announced_); }

void Mailbox::await_announcement(StreamRef stream) { await(stream, memory_.announced, ++announced_); }

void Mailbox::send(StreamRef stream, std::span<const View> parts, int place) {
  const std::size_t total = size_of_all(parts);
  if (in_place() && total > 0) {
    require(place >= 0 && place < std::ssize(memory_.places), "Mailbox::send: there is no such place");
    const std::uint32_t n = ++chunks_;
    return pass_chunk(stream, {memory_.credit, n}, parts, 0, total, memory_.places[static_cast<std::size_t>(place)],
                      Direction::into_slot, {memory_.ready, n});
  }
  for (std::size_t done = 0; done < total; done += memory_.slot_bytes) {
    require(memory_.slot_count > 0, "Mailbox::send: it has no slots");
    const auto slots = static_cast<std::uint32_t>(memory_.slot_count);
    // The slot is free once the chunk that was in it has been taken out; the first round finds every slot free.
    const std::uint32_t n = ++chunks_;
    pass_chunk(stream, {memory_.credit, n - slots}, parts, done, std::min(memory_.slot_bytes, total - done), current_slot(),
               Direction::into_slot, {memory_.ready, n});
    next_slot_ = (next_slot_ + 1) % memory_.slot_count;
  }
}

void Mailbox::receive(StreamRef stream, std::span<const View> parts) {
  const std::size_t total = size_of_all(parts);
  for (std::size_t done = 0; done < total; done += memory_.slot_bytes) {
    require(memory_.slot_count > 0, "Mailbox::receive: it has no slots");
    const std::uint32_t n = ++chunks_;
    pass_chunk(stream, {memory_.ready, n}, parts, done, std::min(memory_.slot_bytes, total - done), current_slot(),
               Direction::out_of_slot, {memory_.credit, n});
    next_slot_ = (next_slot_ + 1) % memory_.slot_count;
  }
}

void Mailbox::post(CounterBatch& counters) { counters.write(memory_.credit, ++posted_); }

void Mailbox::await_arrival(CounterBatch& counters) { counters.wait(memory_.ready, ++chunks_, released_); }

void Mailbox::await_place(CounterBatch& counters) { counters.wait(memory_.credit, chunks_ + 1, released_); }

void Mailbox::mark_sent(CounterBatch& counters) { counters.write(memory_.ready, ++chunks_); }

CountedCopy Mailbox::counted_copy(const void* data, std::size_t bytes, int place) {
  const std::uint32_t n = ++chunks_;
  return {{memory_.credit, n}, {this->place(place), data, bytes}, {memory_.ready, n}};
}

CounterValue Mailbox::next_signal() { return {memory_.signalled, ++signals_}; }

void Mailbox::signal(CounterBatch& counters) {
  const CounterValue next = next_signal();
  counters.write(next.counter, next.value);
}

void Mailbox::await_signal(CounterBatch& counters) { counters.wait(memory_.signalled, ++signals_, released_); }

void Mailbox::pass_chunk(StreamRef stream, CounterValue awaited, std::span<const View> parts, std::size_t first,
                         std::size_t bytes, std::byte* slot, Direction direction, CounterValue counter) const {
  const bool by_one_kernel = by_kernel_ && parts.size() == 1 && bytes <= link_collectives::longest_short_push;
  if (!by_one_kernel) await(stream, awaited.counter, awaited.value);
  std::size_t part_first = 0;  // parts lie end to end
  for (const View& part : parts) {
    const std::size_t begin = std::max(first, part_first), end = std::min(first + bytes, part_first + part.bytes());
    if (begin < end) {
      std::byte* data = static_cast<std::byte*>(part.data) + (begin - part_first);
      std::byte* place = slot + (begin - first);
      const bool into = direction == Direction::into_slot;
      std::byte* to = into ? place : data;
      const std::byte* from = into ? data : place;
      if (by_one_kernel) {
        const CountedCopy copy{awaited, {to, from, bytes}, counter};
        copy_between_counters(stream, std::span(&copy, 1));
      } else if (by_kernel_) {
        copy_by_kernel(stream, to, from, end - begin);
      } else {
        stream.copy(to, from, end - begin);
      }
    }
    part_first += part.bytes();
  }
  if (!by_one_kernel) stream.write_value(counter.counter, counter.value);
}

void Mailbox::release_waits() noexcept {
  *released_ = true;  // before the counters
  try {
    // Sets only the counters that this end waits for: the other end must not read a message that never came.
    const StreamRef stream = release_stream_;
    if (end_ == End::sender) {
      stream.write_value(memory_.credit, chunks_ + past_every_wait);
    } else {
      stream.write_value(memory_.announced, announced_ + past_every_wait);
      stream.write_value(memory_.ready, chunks_ + past_every_wait);
      stream.write_value(memory_.signalled, signals_ + past_every_wait);
    }
  } catch (const std::exception&) {
    return;  // the device is lost, and with it every wait
  }
}

namespace {

// Counters come before the slots, each on cache lines of its own.
constexpr std::size_t counter_bytes = 4096;
constexpr std::size_t announced_at = 0, ready_at = 256, credit_at = 512, signalled_at = 768;

// The two hops follow each other, so a message is cut into pieces: one takes the first hop while another takes the second.
// Smaller pieces overlap more; these still take much longer than starting a copy does (some microseconds).
constexpr std::size_t host_piece = std::size_t{1} << 20;
constexpr std::size_t relay_piece = std::size_t{4} << 20;
constexpr int piece_count = 8;
// The limit per message. Both ends may send before they receive, and neither reaches its receive before its stream holds the
// whole message: three calls for each piece, most_enqueued in all.
constexpr std::size_t most_pieces = 64;
static_assert(3 * most_pieces <= most_enqueued / 2);
constexpr int short_slots = 8;
constexpr std::size_t short_slots_bytes = std::size_t{16} << 20;
constexpr std::size_t largest_slot = std::size_t{256} << 20;

struct SlotSizes {
  std::size_t bytes = 0;
  int count = 0;
  std::size_t total() const { return bytes * static_cast<std::size_t>(count); }
};

constexpr std::size_t slot_alignment = 256;

std::size_t aligned(std::size_t bytes) { return (bytes + slot_alignment - 1) / slot_alignment * slot_alignment; }

SlotSizes slots_of(const MailboxSpec& spec) {
  if (spec.message_bytes == 0 || !spec.places.empty()) return {};
  const std::size_t message = aligned(spec.message_bytes);
  if (takes_one_hop(spec.transport)) {
    // A short message arrives before the acknowledgement of the previous one returns; more messages in transit hide that.
    const int more = static_cast<int>(std::min<std::size_t>(short_slots, short_slots_bytes / message));
    return {std::min(message, largest_slot), std::max(spec.slots, more)};
  }
  const std::size_t least = spec.transport == Transport::host ? host_piece : relay_piece;
  const std::size_t piece = std::min(message, std::max(least, aligned((message + most_pieces - 1) / most_pieces)));
  return {piece, std::max(spec.slots, piece_count)};
}

std::size_t bytes_of(const std::vector<Place>& places) {
  std::size_t bytes = 0;
  for (const Place& place : places) bytes += aligned(place.bytes);
  return bytes;
}

class MailboxMemoryMaker {
 public:
  MailboxMemoryMaker(End end, const MailboxSpec& spec, HandleExchange& exchange)
      : end_(end), spec_(spec), exchange_(exchange), slots_(slots_of(spec)) {
    memory_.slot_bytes = slots_.bytes;
    memory_.slot_count = slots_.count;
  }

  MailboxMemory take() {
    switch (spec_.transport) {
      case Transport::direct: on_both_ends(RegionKind::thread_memory); break;
      case Transport::ipc: on_both_ends(RegionKind::ipc); break;
      case Transport::vmm: on_both_ends(RegionKind::vmm); break;
      case Transport::host: {
        std::byte* all =
            region("host", RegionKind::host_memory, End::receiver, counter_bytes + slots_.total() + bytes_of(spec_.places), {});
        counters(all, all);
        memory_.slots = all + counter_bytes;
        places_from(memory_.slots);
        break;
      }
      case Transport::relay: {
        std::byte* host = region("counters", RegionKind::host_memory, End::receiver, counter_bytes, {});
        counters(host, host);
        if (slots_.count > 0) memory_.slots = region("bridge", RegionKind::vmm, End::receiver, slots_.total(), spec_.bridge);
        break;
      }
      case Transport::nccl: throw InternalError("make_mailbox_memory: nccl has no mailbox");
    }
    return std::move(memory_);
  }

 private:
  // Each end waits for counters in its own memory, and the slots are in the memory of the end that does not move the bytes.
  void on_both_ends(RegionKind kind) {
    const bool at_sender = spec_.mover == Mover::sm_read;
    std::byte* receiver =
        region("receiver", kind, End::receiver, counter_bytes + bytes_of(spec_.places) + (at_sender ? 0 : slots_.total()), {});
    std::byte* sender = region("sender", kind, End::sender, counter_bytes + (at_sender ? slots_.total() : 0), {});
    counters(receiver, sender);
    memory_.slots = (at_sender ? sender : receiver) + counter_bytes;
    places_from(receiver + counter_bytes);
  }

  // Sets each place to the address where its message begins.
  void places_from(std::byte* data) {
    for (const Place& place : spec_.places) {
      memory_.places.push_back(data + place.message_offset);
      data += aligned(place.bytes);
    }
  }

  void counters(std::byte* receiver, std::byte* sender) {
    memory_.announced = reinterpret_cast<std::uint32_t*>(receiver + announced_at);
    memory_.ready = reinterpret_cast<std::uint32_t*>(receiver + ready_at);
    memory_.credit = reinterpret_cast<std::uint32_t*>(sender + credit_at);
    memory_.signalled = reinterpret_cast<std::uint32_t*>(receiver + signalled_at);
  }

  // Memory of one end (or of `other_device`), as this end addresses it.
  std::byte* region(const std::string& part, RegionKind kind, End owner, std::size_t bytes,
                    std::optional<Device> other_device) {
    RegionSpec spec{.kind = kind,
                    .name = spec_.name + "/" + part,
                    .bytes = bytes,
                    .memory_on = end_ == owner ? spec_.device : spec_.peer_device,
                    .used_by = spec_.device,
                    .fabric = spec_.fabric};
    if (kind == RegionKind::host_memory) spec.memory_on = {DeviceKind::host, 0};
    if (other_device) spec.memory_on = *other_device;
    const bool own = end_ == owner;
    std::shared_ptr<Region> made = own ? export_region(spec, exchange_) : import_region(spec, exchange_);
    std::byte* data = made->data();
    (own ? memory_.exported : memory_.imported).push_back(std::move(made));
    return data;
  }

  const End end_;
  const MailboxSpec& spec_;
  HandleExchange& exchange_;
  const SlotSizes slots_;
  MailboxMemory memory_;
};

}  // namespace

bool takes_one_hop(Transport transport) {
  switch (transport) {
    case Transport::direct:
    case Transport::vmm:
    case Transport::ipc: return true;
    case Transport::relay:
    case Transport::host: return false;
    case Transport::nccl: break;
  }
  throw InternalError("takes_one_hop: nccl has no mailbox");
}

bool arrives_in_place(Transport transport, Mover mover, DeviceKind kind) {
  if (transport == Transport::nccl || mover == Mover::sm_read) return false;
  return takes_one_hop(transport) || (transport == Transport::host && kind == DeviceKind::host);
}

MailboxMemory make_mailbox_memory(End end, const MailboxSpec& spec, HandleExchange& exchange) {
  return MailboxMemoryMaker(end, spec, exchange).take();
}

}  // namespace plait::comm::p2p
