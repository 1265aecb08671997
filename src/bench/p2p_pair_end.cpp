#include "bench/p2p_pair_end.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "bench/bench_ranks.h"
#include "bench/sizes.h"
#include "core/error.h"
#include "core/stream.h"

namespace plait::bench {
namespace {

using comm::p2p::Link;

constexpr std::size_t largest_held = std::size_t{1} << 20;
constexpr std::size_t short_messages[] = {std::size_t{64} << 10, std::size_t{1} << 20};  // sizes with their own links
constexpr std::size_t shift_bytes = 256;  // messages start aligned, as real ones do
constexpr std::uint64_t shift_count = 251;
constexpr std::uint64_t rank_pattern_shift = 500'009;  // distinguishes the contents of different senders
constexpr int slots = 2;
constexpr int deepest_ring = 8;  // of a mailbox for short messages, which has more slots than requested
constexpr int round_trips = 20;

// Uncounted messages: until the ring is full and both ends are in step.
int lead(std::size_t bytes) { return bytes >= std::size_t{64} << 20 ? slots : deepest_ring; }

double microseconds(const Event& start, const Event& stop) { return 1e3 * static_cast<double>(elapsed_ms(start, stop)); }

}  // namespace

PairEnd::PairEnd(launch::RankContext& rank, const PairSpec& spec, const std::vector<MethodChoice>& choices,
                 const comm::p2p::LinkMaker& make_link)
    : rank_(rank),
      spec_(spec),
      meeting_(*rank.rendezvous, spec.name, rank.rank, {spec.from, spec.to}, spec.timeout),
      memory_(rank.device),
      gate_(memory_.allocate(64, MemoryKind::pinned_host)),
      source_(memory_.allocate(spec.largest_bytes + shift_bytes * shift_count)),
      targets_{memory_.allocate(spec.largest_bytes), memory_.allocate(spec.largest_bytes)},
      traffic_(memory_),
      pattern_(Pattern::random(1)),
      out_(rank.device, StreamPriority::high),
      in_(rank.device, StreamPriority::high),
      compute_(rank.device) {
  write_counter(static_cast<std::uint32_t*>(gate_.data()), 0);
  const auto source_bytes = static_cast<std::int64_t>(source_.bytes());
  traffic_.synchronize_fill(out_, pattern_, {source_.data(), DType::u8, {source_bytes}},
                            static_cast<std::uint64_t>(rank.rank) * rank_pattern_shift);
  for (const MethodChoice& choice : choices) {
    PairMethod made{choice.method, choice.obstacle, {}};
    if (made.obstacle.empty()) {
      try {
        // Both ends fail together, since make_link agrees on every step.
        for (const std::size_t bytes : link_sizes(choice.method)) {
          PairLinks& links = made.links.emplace_back(PairLinks{bytes, {}});
          links.ends.make(rank, link_of(choice.method, spec.from, spec.to, bytes), make_link);
          links.ends.make(rank, link_of(choice.method, spec.to, spec.from, bytes), make_link);
        }
      } catch (const CommError& error) {
        if (rank.life->is_aborted()) throw;
        made.obstacle = error.what();
        made.links.clear();
      }
    }
    methods_.push_back(std::move(made));
  }
}

void PairEnd::drain() noexcept {
  open_gate();
  runtime::synchronize_aborted(out_);
  runtime::synchronize_aborted(in_);
}

const PairLinks& PairMethod::links_for(std::size_t bytes) const {
  const auto found = std::find_if(links.begin(), links.end(), [&](const PairLinks& l) { return bytes <= l.bytes; });
  require(found != links.end(), "bench p2p: no link is made for messages of this size");
  return *found;
}

std::vector<std::size_t> PairEnd::link_sizes(const LinkMethod& method) const {
  std::vector<std::size_t> sizes;
  for (const std::size_t bytes : short_messages) {
    if (bytes < spec_.largest_bytes && method.transport != Transport::nccl) sizes.push_back(bytes);
  }
  sizes.push_back(spec_.largest_bytes);
  return sizes;
}

comm::p2p::LinkSpec PairEnd::link_of(const LinkMethod& method, int from, int to, std::size_t bytes) const {
  comm::p2p::LinkSpec link;
  link.name = fmt::format("{}/{}/{}/{}-{}", spec_.name, method.name(), bytes, from, to);
  link.from = from;
  link.to = to;
  link.message_bytes = bytes;
  link.transport = method.transport;
  link.mover = method.mover;
  link.slots = slots;
  link.announce = false;  // only the message itself
  // As in training, where messages arrive in free places; short messages fill slots, so that many are in transit.
  const bool in_place = rank_.rank == to && bytes > *std::rbegin(short_messages);
  for (int n = 0; in_place && n < slots; ++n) link.places.push_back({{.slot = n}, bytes, 0});
  link.timeout = spec_.timeout;
  link.host_interface = spec_.host_interface;
  return link;
}

std::uint64_t PairEnd::shift(int message) const {
  return (case_ * 37 + static_cast<std::uint64_t>(message) * 11) % shift_count * shift_bytes;
}

View PairEnd::outgoing(std::size_t bytes, int message) const {
  return {static_cast<std::byte*>(source_.data()) + shift(message), DType::u8, {static_cast<std::int64_t>(bytes)}};
}

View PairEnd::incoming(const PairMethod& method, std::size_t bytes, int message) const {
  const Link& link = *method.links_for(bytes).ends.in();
  const int place = place_of(link, message);
  return {place < 0 ? targets_[message % 2].data() : link.memory_of(place), DType::u8, {static_cast<std::int64_t>(bytes)}};
}

int PairEnd::place_of(const Link& link, int message) { return link.places().empty() ? -1 : message % slots; }

void PairEnd::send_on(StreamRef stream, const PairMethod& method, std::size_t bytes, int message) {
  Link& link = *method.links_for(bytes).ends.out();
  link.send(stream, outgoing(bytes, message), place_of(link, message));
}

void PairEnd::receive_on(StreamRef stream, const PairMethod& method, std::size_t bytes, int message) {
  Link& link = *method.links_for(bytes).ends.in();
  link.receive(stream, incoming(method, bytes, message), nullptr, place_of(link, message));
}

void PairEnd::hold(StreamRef stream) const { stream.wait_value(static_cast<const std::uint32_t*>(gate_.data()), gate_turn_); }

void PairEnd::open_gate() noexcept { write_counter(static_cast<std::uint32_t*>(gate_.data()), gate_turn_++); }

void PairEnd::send(const PairMethod& method, std::size_t bytes, int message) { send_on(out_, method, bytes, message); }

void PairEnd::receive(const PairMethod& method, std::size_t bytes, int message, bool more) {
  Link& link = *method.links_for(bytes).ends.in();
  if (!link.places().empty()) {
    if (message == 0) link.post(in_);
    if (more) link.post(in_);  // in the place of the previous message
  }
  receive_on(in_, method, bytes, message);
}

std::string PairEnd::label(const PairMethod& method, std::size_t bytes) const {
  return fmt::format("{} -> {} by {}, messages of {}", spec_.from, spec_.to, method.method.name(), format_size(bytes));
}

void PairEnd::synchronize(const Event& event, const PairMethod& method, std::size_t bytes) const {
  synchronize_within(event, spec_.timeout, label(method, bytes));
}

void PairEnd::check(const PairMethod& method, std::size_t bytes, int message) {
  const auto peer = static_cast<std::uint64_t>(is_from() ? spec_.to : spec_.from);
  const auto wrong = traffic_.synchronize_find_wrong(in_, pattern_, incoming(method, bytes, message),
                                                     peer * rank_pattern_shift + shift(message));
  if (!wrong) return;
  throw CommError(fmt::format("{}: rank {} received wrong data: byte {} of message {} is {:#04x}, not {:#04x}",
                              label(method, bytes), rank_.rank, wrong->at, message, static_cast<unsigned>(wrong->is),
                              static_cast<unsigned>(wrong->expected)));
}

void PairEnd::check_last(const PairMethod& method, const Loop& loop, int messages) {
  if (!loop.check) return;
  check(method, loop.bytes, messages - 1);
  check(method, loop.bytes, messages - 2);
}

double PairEnd::synchronize_one_way(const PairMethod& method, const Loop& loop) {
  begin_case();
  const StreamRef stream = is_from() ? out_ : in_;
  const int first = lead(loop.bytes), all = first + loop.messages;
  Event start(device(), EventTiming::on), stop(device(), EventTiming::on);
  if (loop.bytes <= largest_held) hold(stream);
  for (int i = 0; i < all; ++i) {
    if (i == first) stream.record(start);
    if (is_from()) {
      send(method, loop.bytes, i);
    } else {
      receive(method, loop.bytes, i, i + 1 < all);
    }
  }
  stream.record(stop);
  open_gate();
  synchronize(stop, method, loop.bytes);
  if (is_from()) return 0;
  check_last(method, loop, all);
  return microseconds(start, stop) / loop.messages;
}

double PairEnd::synchronize_both_ways(const PairMethod& method, const Loop& loop) {
  begin_case();
  const int first = lead(loop.bytes), all = first + loop.messages;
  Event origin(device(), EventTiming::on);
  Event out_start(device(), EventTiming::on), out_stop(device(), EventTiming::on);
  Event in_start(device(), EventTiming::on), in_stop(device(), EventTiming::on);
  out().record(origin);
  in().wait(origin);
  if (loop.bytes <= largest_held) {
    hold(out_);
    hold(in_);
  }
  // Interleaved, so that neither end enqueues one direction only after waiting for the other.
  for (int i = 0; i < all; ++i) {
    if (i == first) {
      out().record(out_start);
      in().record(in_start);
    }
    send(method, loop.bytes, i);
    receive(method, loop.bytes, i, i + 1 < all);
  }
  out().record(out_stop);
  in().record(in_stop);
  open_gate();
  synchronize(out_stop, method, loop.bytes);
  synchronize(in_stop, method, loop.bytes);
  check_last(method, loop, all);
  // The time of both directions if they ran at once. If they took turns instead, it is from the first to the last.
  const double out_from = microseconds(origin, out_start), out_to = microseconds(origin, out_stop);
  const double in_from = microseconds(origin, in_start), in_to = microseconds(origin, in_stop);
  const double together = std::max(out_to - out_from, in_to - in_from);
  const double overlap = std::min(out_to, in_to) - std::max(out_from, in_from);
  const double span = std::max(out_to, in_to) - std::min(out_from, in_from);
  return (overlap >= together / 2 ? together : span) / loop.messages;
}

double PairEnd::synchronize_latency(const PairMethod& method, const Loop& loop) {
  begin_case();
  const int trips = std::min(loop.messages, round_trips), first = 2, all = first + trips;
  Event start(device(), EventTiming::on), stop(device(), EventTiming::on);
  if (loop.bytes <= largest_held) hold(out_);
  for (int i = 0; i < all; ++i) {
    if (i == first) out().record(start);
    // One stream for both, which keeps the answer behind the question.
    if (is_from()) {
      send_on(out_, method, loop.bytes, i);
      receive_on(out_, method, loop.bytes, i);
    } else {
      receive_on(out_, method, loop.bytes, i);
      send_on(out_, method, loop.bytes, i);
    }
  }
  out().record(stop);
  open_gate();
  synchronize(stop, method, loop.bytes);
  check_last(method, loop, all);
  return is_from() ? microseconds(start, stop) / (2 * trips) : 0;
}

}  // namespace plait::bench
