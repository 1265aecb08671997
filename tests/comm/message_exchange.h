// Thousands of messages of random sizes and contents in both directions of every pair of neighbours at once, with random delays
// on both sides, every byte checked.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "comm/p2p/link.h"
#include "comm/p2p/trial.h"
#include "core/device.h"

namespace plait::comm::test {

struct ExchangeSpec {
  int rank = 0, size = 2;
  Device device = {};
  std::optional<Transport> transport = {};
  std::optional<Mover> mover = {};
  int messages = 1000;           // in each direction of each pair
  std::size_t largest = 40'000;  // bytes
  std::size_t slot_message = 0;  // LinkSpec::message_bytes; 0: `largest`. Less: messages travel in chunks
  std::uint64_t seed = 1;
  bool in_place = false;    // messages arrive in buffers of the link, where the transport can do that
  bool post_ahead = false;  // in place: the next message may come while this one is on its way
};

// Both ends draw the same sizes, each its own delays.
class ExchangeSizes {
 public:
  ExchangeSizes(const ExchangeSpec& spec, int from, int to)
      : engine_(spec.seed * 1000 + static_cast<std::uint64_t>(from * 37 + to)), largest_(spec.largest) {}
  std::size_t next() {
    // Half of them small, so that both the cost per message and the bytes matter.
    const std::size_t limit =
        std::uniform_int_distribution<int>(0, 1)(engine_) == 0 ? std::min<std::size_t>(largest_, 64) : largest_;
    return std::uniform_int_distribution<std::size_t>(0, limit)(engine_);
  }

 private:
  std::mt19937_64 engine_;
  std::size_t largest_;
};

// One direction on one rank: a stream, device memory, and pinned staging that is used again when its last use is through.
class ExchangeLane {
 public:
  ExchangeLane(const ExchangeSpec& spec, Rendezvous& store, int from, int to)
      : spec_(spec),
        from_(from),
        to_(to),
        memory_(spec.device),
        sizes_(spec, from, to),
        delays_(spec.seed * 77 + static_cast<std::uint64_t>(spec.rank)),
        stream_(spec.device, StreamPriority::high) {
    for (Place& place : places_) {
      place.device = memory_.allocate(spec.largest + 1);
      place.host = memory_.allocate(spec.largest + 1, MemoryKind::pinned_host);
      place.done.emplace(spec.device);
    }
    p2p::LinkSpec link{.name = "exchange." + std::to_string(from) + "." + std::to_string(to),
                       .from = from,
                       .to = to,
                       .rank = spec.rank,
                       .device = spec.device,
                       .message_bytes = spec.slot_message > 0 ? spec.slot_message : spec.largest,
                       .transport = spec.transport,
                       .mover = spec.mover};
    for (int n = 0; n <= spec.messages; ++n) bytes_.push_back(sizes_.next());
    if (spec.in_place && spec.rank == to) {
      for (std::size_t n = 0; n < places_.size(); ++n)
        link.places.push_back({{.slot = static_cast<int>(n)}, spec.largest + 2 * n, n});
    }
    link_ = p2p::make_link(link, store);
  }
  ~ExchangeLane() {
    if (finished_) return;
    link_->abort();
    stream_.ref().synchronize();
  }

  const p2p::LinkReport& report() const { return link_->report(); }

  // The next message; "" or what was wrong with an earlier one.
  std::string step() {
    const std::size_t index = static_cast<std::size_t>(count_) % places_.size();
    Place& place = places_[index];
    const int arrives = link_->places().empty() ? -1 : static_cast<int>(index);
    std::string problem = settle(place);
    place.bytes = bytes_[static_cast<std::size_t>(count_)];
    place.message = static_cast<std::uint64_t>(count_++) * 100 + static_cast<std::uint64_t>(from_);
    const StreamRef s = stream_;
    View view(place.device.data(), DType::u8, {static_cast<std::int64_t>(place.bytes)});
    delay(s);
    if (spec_.rank == from_) {
      p2p::fill_pattern({static_cast<std::byte*>(place.host.data()), place.bytes}, place.message);
      s.copy(place.device.data(), place.host.data(), place.bytes);
      link_->send(s, view, arrives);
      s.zero(place.device.data(), place.bytes);  // a message that is still read from here would show it
    } else {
      if (arrives >= 0) view.data = link_->memory_of(arrives) + link_->places()[index].message_offset;
      if (spec_.post_ahead && arrives >= 0) problem += post_next(s, place.bytes > 0);
      link_->receive(s, view, nullptr, arrives);
      s.copy(place.host.data(), view.data, place.bytes);
    }
    s.record(*place.done);
    place.used = true;
    return problem;
  }

  std::string finish() {
    std::string problem;
    for (Place& place : places_) problem += settle(place);
    stream_.ref().synchronize();
    finished_ = true;
    return problem;
  }

 private:
  struct Place {
    Buffer device, host;
    std::optional<Event> done;
    std::size_t bytes = 0;
    std::uint64_t message = 0;
    bool used = false;
  };

  // This one, if it was not posted, and the one after it; messages without bytes are not posted.
  std::string post_next(StreamRef s, bool has_bytes) {
    if (has_bytes && !posted_) link_->post(s);
    posted_ = false;
    if (count_ >= spec_.messages || bytes_[static_cast<std::size_t>(count_)] == 0) return "";
    Place& next = places_[static_cast<std::size_t>(count_) % places_.size()];
    const std::string problem = settle(next);
    link_->post(s);
    posted_ = true;
    return problem;
  }

  std::string settle(Place& place) {
    if (!place.used) return "";
    place.used = false;
    place.done->synchronize();
    if (spec_.rank == from_) return "";
    const std::int64_t wrong =
        p2p::find_wrong_byte({static_cast<const std::byte*>(place.host.data()), place.bytes}, place.message);
    if (wrong < 0) return "";
    return "message " + std::to_string(place.message / 100) + " " + std::to_string(from_) + " -> " + std::to_string(to_) +
           ": byte " + std::to_string(wrong) + " of " + std::to_string(place.bytes) + " is wrong\n";
  }

  void delay(StreamRef s) {
    if (std::uniform_int_distribution<int>(0, 19)(delays_) != 0) return;
    const std::chrono::microseconds time(std::uniform_int_distribution<int>(0, 400)(delays_));
    if (std::uniform_int_distribution<int>(0, 1)(delays_) == 0) {
      s.enqueue_host([time] { std::this_thread::sleep_for(time); });
    } else {
      std::this_thread::sleep_for(time);
    }
  }

  const ExchangeSpec spec_;
  const int from_, to_;
  DeviceMemory memory_;
  ExchangeSizes sizes_;
  std::mt19937_64 delays_;
  std::array<Place, 6> places_;
  std::vector<std::size_t> bytes_;  // of every message
  bool posted_ = false;             // the next one
  std::unique_ptr<p2p::Link> link_;
  Stream stream_;  // drained before the link and the memory go
  int count_ = 0;
  bool finished_ = false;
};

// One rank's part in a ring of ranks; "" if every byte arrived. `report` is that of this rank's link to the next.
inline std::string exchange_messages(const ExchangeSpec& spec, Rendezvous& store, p2p::LinkReport* report = nullptr) {
  make_current(spec.device);
  std::vector<std::pair<int, int>> pairs;
  for (int rank = 0; rank < spec.size; ++rank) {
    const int next = (rank + 1) % spec.size;
    pairs.emplace_back(rank, next);
    if (spec.size > 2) pairs.emplace_back(next, rank);
  }
  std::vector<std::unique_ptr<ExchangeLane>> lanes;
  for (const auto& [from, to] : pairs) {
    if (from != spec.rank && to != spec.rank) continue;
    lanes.push_back(std::make_unique<ExchangeLane>(spec, store, from, to));
    if (report && from == spec.rank) *report = lanes.back()->report();
  }
  std::string problems;
  for (int n = 0; n < spec.messages && problems.empty(); ++n) {
    for (auto& lane : lanes) problems += lane->step();
  }
  if (!problems.empty()) return problems;
  for (auto& lane : lanes) problems += lane->finish();
  return problems;
}

}  // namespace plait::comm::test
