#include "comm/p2p/mailbox.h"

#include <algorithm>
#include <iterator>

#include "core/collective.h"
#include "core/error.h"

namespace plait::comm::p2p {
namespace {

// Beyond any wait in a stream's queue, and less than half the circle of counters.
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

}  // namespace plait::comm::p2p
