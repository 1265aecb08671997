#include "comm/p2p/link_communicator.h"

#include <algorithm>
#include <utility>

#include "comm/backends.h"
#include "comm/meeting.h"
#include "comm/p2p/choice.h"
#include "comm/p2p/mover.h"
#include "core/collective.h"
#include "core/error.h"

namespace plait::comm::p2p {
namespace {

using link_collectives::alignment;
using link_collectives::rounded_up;

std::byte* bytes_of(const View& data) { return static_cast<std::byte*>(data.data); }

View bytes_at(const std::byte* data, std::size_t bytes) {
  return {const_cast<std::byte*>(data), DType::u8, {static_cast<std::int64_t>(bytes)}};
}

[[noreturn]] void refuse(const LinkCommunicatorSpec& spec, const std::string& why) {
  std::string ranks;
  for (const int member : spec.members) ranks += (ranks.empty() ? "" : ", ") + std::to_string(member);
  throw CommError(spec.setting + "=links cannot be used between ranks " + ranks + ": " + why + "; " + spec.setting +
                  "=library needs no links");
}

// Makes the link; a NoTransport of the trial becomes the group's error.
std::unique_ptr<Link> make_or_refuse(const LinkCommunicatorSpec& spec, const LinkSpec& link, Rendezvous& store) {
  try {
    return spec.make_link(link, store);
  } catch (const NoTransport& error) {
    refuse(spec, error.what());
  }
}

// Blocks of a push by kernel: 16 fill an NVLink, and a short push needs fewer.
int blocks_for(std::size_t bytes) {
  constexpr std::size_t most = 16, bytes_per_block = std::size_t{32} << 10;
  return static_cast<int>(std::clamp<std::size_t>(bytes / bytes_per_block, 1, most));
}

std::string hop(int from, int to) { return std::to_string(from) + " -> " + std::to_string(to); }

// Checked before any link is made: making them takes long, and only its two ends would notice an impossible one.
void check_pairs(const LinkCommunicatorSpec& spec, Rendezvous& store) {
  const auto rank = static_cast<std::size_t>(spec.group.rank);
  Meeting meeting(store, spec.group.name + ".facts", spec.members[rank], spec.members, spec.group.timeout);
  const std::vector<EndFacts> ends = meeting.gather("end", end_facts(spec.members[rank], spec.group.device, spec.peer_access));
  std::vector<PathFacts> own;
  for (std::size_t other = 0; other < ends.size(); ++other)
    own.push_back(other == rank ? PathFacts{} : path_facts(ends[rank], ends[other]));
  const std::vector<std::vector<PathFacts>> paths = meeting.gather("paths", own);
  for (const std::vector<PathFacts>& of_rank : paths) {
    if (of_rank.size() != ends.size())
      throw CommError("group '" + spec.group.name + "': a rank knows other paths than there are");
  }
  for (std::size_t a = 0; a < ends.size(); ++a) {
    for (std::size_t b = a + 1; b < ends.size(); ++b) {
      const int from = spec.members[a], to = spec.members[b];
      const std::string obstacle = obstacle_to_mailbox({ends[a], ends[b], paths[a][b], paths[b][a]}, spec.transport(from, to));
      if (!obstacle.empty()) refuse(spec, hop(from, to) + ": " + obstacle);
    }
  }
}

}  // namespace

LinkCommunicator::LinkCommunicator(const LinkCommunicatorSpec& spec, Rendezvous& store)
    : rank_(spec.group.rank),
      slice_bytes_(rounded_up(std::max<std::size_t>(spec.slice_bytes, 1))),
      longest_by_kernel_(spec.longest_by_kernel),
      symmetric_bytes_(spec.symmetric_bytes),
      memory_(spec.group.device),
      peers_(static_cast<std::size_t>(spec.group.size)),
      links_(spec.group.device) {
  require(spec.members.size() == peers_.size(), "LinkCommunicator: a member for every rank of the group");
  if (size() > link_collectives::most_ranks) refuse(spec, "they are more than " + std::to_string(link_collectives::most_ranks));
  check_pairs(spec, store);
  // All pairs in one order, so that no two ranks wait for each other's next.
  for (int low = 0; low < spec.group.size; ++low) {
    for (int high = low + 1; high < spec.group.size; ++high) {
      if (low != rank_ && high != rank_) continue;
      for (const auto& [from, to] : {std::pair{low, high}, {high, low}}) {
        const int first = spec.members[static_cast<std::size_t>(from)], second = spec.members[static_cast<std::size_t>(to)];
        LinkSpec link{.name = spec.group.name + ".link." + std::to_string(first) + "." + std::to_string(second),
                      .from = first,
                      .to = second,
                      .rank = spec.members[static_cast<std::size_t>(rank_)],
                      .device = spec.group.device,
                      .message_bytes = slice_bytes_,
                      .transport = spec.transport(first, second),
                      .peer_access = spec.peer_access,
                      .mover = Mover::copy_engine,
                      .places = {},
                      .announce = false,
                      .timeout = spec.group.timeout,
                      .max_ctas = spec.group.max_ctas,
                      .host_interface = spec.group.host_interface,
                      .shared = links_.shared};
        for (int place = 0; to == rank_ && place < link_collectives::places; ++place)
          link.places.push_back({{.slot = place}, slice_bytes_, 0});
        Peer& other = peer(from == rank_ ? to : from);
        links_.list.push_back(make_or_refuse(spec, link, store));
        Link* const made = links_.list.back().get();
        (from == rank_ ? other.to : other.from) = made;
        if (from == rank_) continue;
        for (int place = 0; place < static_cast<int>(made->places().size()); ++place)
          other.landing.push_back(made->memory_of(place));
        other.untold = static_cast<int>(other.landing.size());
        if (other.landing.empty()) other.copied = memory_.allocate(slice_bytes_);
        landing_bytes_ += other.landing.empty() ? other.copied.bytes()
                                                : other.landing.size() * link_collectives::bytes_of_place(slice_bytes_);
      }
    }
  }
  // Done before any rank leaves the meeting below, so that no first push waits for a place, or for a kernel to be loaded.
  const StreamRef stream = links_.shared->release_stream();
  CounterBatch counters;
  for (Peer& p : peers_) counters.append(take_free_posts(p));
  counters.enqueue(stream);
  if (spec.group.device.is_cuda()) {
    blocks_done_ = memory_.allocate(most_copies * sizeof(std::uint32_t));
    stream.zero(blocks_done_.data(), blocks_done_.bytes());
    load_combining_kernels();
    load_copying_kernels();
  }
  stream.synchronize();
  agree_on_slices(spec, store);
  if (symmetric_bytes_ > 0) make_symmetric_memory(spec, store);
}

// Shared only if all links of all ranks use one transport that allows it; otherwise parts from some ranks would still come
// through landing places.
void LinkCommunicator::make_symmetric_memory(const LinkCommunicatorSpec& spec, Rendezvous& store) {
  Meeting meeting(store, spec.group.name + ".symmetric", spec.members[static_cast<std::size_t>(rank_)], spec.members,
                  spec.group.timeout);
  meeting.agree("bytes", symmetric_bytes_);
  const Transport transport = links_.list.front()->report().transport;
  const std::optional<RegionKind> kind = symmetric_kind(transport, spec.group.device.kind);
  const bool is_like_all = std::ranges::all_of(links_.list, [&](const std::unique_ptr<Link>& link) {
    return link->report().transport == transport && (link->places().empty() == !kind);
  });
  const std::string own = kind && is_like_all ? to_string(transport) : "";
  const std::vector<std::string> all = meeting.gather("transport", own);
  if (!own.empty() && std::ranges::all_of(all, [&](const std::string& other) { return other == own; })) {
    symmetric_.emplace(SymmetricMemorySpec{.name = spec.group.name + ".symmetric",
                                           .kind = *kind,
                                           .bytes = symmetric_bytes_,
                                           .device = spec.group.device,
                                           .members = spec.members,
                                           .rank = rank_,
                                           .timeout = spec.group.timeout},
                       store);
    return;
  }
  unshared_ = memory_.allocate(symmetric_bytes_);
  const StreamRef stream = links_.shared->release_stream();
  stream.zero(unshared_.data(), unshared_.bytes());
  stream.synchronize();
}

std::byte* LinkCommunicator::symmetric_memory() const {
  return symmetric_ ? symmetric_->of(rank_) : static_cast<std::byte*>(unshared_.data());
}

// Every rank pushes a piece to all before it takes theirs, so every link has to hold one.
void LinkCommunicator::agree_on_slices(const LinkCommunicatorSpec& spec, Rendezvous& store) {
  std::size_t least = slice_bytes_;
  std::string obstacle;
  for (const std::unique_ptr<Link>& link : links_.list) {
    least = std::min(least, link->holds() / alignment * alignment);
    const LinkReport& report = link->report();
    if (link->holds() >= alignment || !obstacle.empty()) continue;
    obstacle =
        hop(report.from, report.to) + " goes by " + to_string(report.transport) + ", which holds no message until it is taken";
    for (const PassedOver& better : report.better) obstacle += "; not by " + to_string(better.transport) + ": " + better.reason;
  }
  Meeting meeting(store, spec.group.name + ".slices", spec.members[static_cast<std::size_t>(rank_)], spec.members,
                  spec.group.timeout);
  for (const std::string& other : meeting.gather("obstacle", obstacle)) {
    if (!other.empty()) refuse(spec, other);
  }
  for (const std::uint64_t other : meeting.gather("bytes", static_cast<std::uint64_t>(least)))
    slice_bytes_ = std::min(slice_bytes_, std::max<std::size_t>(alignment, other));
}

LinkCommunicator::Links::~Links() {
  shared->begin_to_go();
  for (std::unique_ptr<Link>& link : list) link.reset();
}

std::vector<LinkReport> LinkCommunicator::reports() const {
  std::vector<LinkReport> list;
  for (const Peer& p : peers_) {
    if (p.to) list.push_back(p.to->report());
  }
  return list;
}

Paths LinkCommunicator::paths() const {
  Paths all{.by = "links", .pairs = {}};
  for (std::size_t to = 0; to < peers_.size(); ++to) {
    if (!peers_[to].to) continue;
    for (PairPath path : peers_[to].to->report().paths.pairs) {
      path.from = rank_, path.to = static_cast<int>(to);
      all.pairs.push_back(std::move(path));
    }
  }
  return all;
}

template <typename Do>
void LinkCommunicator::for_each_other(Do act) {
  // Every rank begins with the next one, so that no rank is everybody's first.
  for (int step = 1; step < size(); ++step) act((rank_ + step) % size());
}

// Goes through the other ranks in the order in which they push to this one.
template <typename Do>
void LinkCommunicator::for_each_arrival(Do act) {
  for (int step = 1; step < size(); ++step) act((rank_ - step + size()) % size());
}

LinkCommunicator::Range LinkCommunicator::piece_of(const Range& range, std::size_t piece) const {
  const std::size_t done = std::min(range.bytes, piece * slice_bytes_);
  return {range.first + done, std::min(range.bytes - done, slice_bytes_)};
}

std::size_t LinkCommunicator::pieces(const Ranges& ranges) const {
  std::size_t most = 0;
  for (int r = 0; r < size(); ++r) most = std::max(most, ranges(r).bytes);
  return (most + slice_bytes_ - 1) / slice_bytes_;
}

template <typename PieceFor, typename BytesFrom>
std::vector<const std::byte*> LinkCommunicator::trade(StreamRef stream, PieceFor piece, BytesFrom arriving,
                                                      const std::byte* own) {
  std::vector<const std::byte*> parts(peers_.size(), own);
  if (alone_) return parts;
  const auto is_pushed = [&](int other) { return piece(other).bytes > 0 && !peer(other).to->places().empty(); };
  std::size_t longest = 0;
  for_each_other([&](int other) { longest = std::max(longest, is_pushed(other) ? piece(other).bytes : 0); });
  const bool by_kernel = is_by_kernel(stream, longest);
  CounterBatch counters;
  std::vector<CountedCopy> copies;
  for_each_other([&](int other) {
    if (!is_pushed(other)) return;
    if (by_kernel)
      copies.push_back(push(peer(other), piece(other)));
    else
      peer(other).to->await_place(counters);
  });
  counters.enqueue(stream);
  if (by_kernel) push_by_kernel(stream, copies, longest);
  for_each_other([&](int other) {
    const Piece sent = piece(other);
    Peer& p = peer(other);
    if (sent.bytes > 0 && p.to->places().empty()) {
      p.to->send(stream, bytes_at(sent.data, sent.bytes));
    } else if (sent.bytes > 0 && !by_kernel) {
      stream.copy(p.to->memory_of(next_place(p)), sent.data, sent.bytes);
      p.to->mark_sent(counters);
    }
  });
  // Enqueued after the counters that announce messages, because other ranks wait for those. Empty if a kernel has set them.
  for_each_other([&](int other) { counters.append(take_free_posts(peer(other))); });
  for_each_arrival([&](int other) {
    const std::size_t bytes = arriving(other);
    if (bytes == 0) return;
    Peer& p = peer(other);
    const std::byte*& part = parts[static_cast<std::size_t>(other)];
    if (!p.landing.empty()) {
      part = next_landing(p, counters);
      return;
    }
    counters.enqueue(stream);
    part = static_cast<std::byte*>(p.copied.data());
    p.from->receive(stream, bytes_at(part, bytes));
  });
  counters.enqueue(stream);
  return parts;
}

bool LinkCommunicator::is_by_kernel(StreamRef stream, std::size_t bytes) const {
  return stream.device().is_cuda() && bytes > 0 && bytes <= longest_by_kernel_;
}

void LinkCommunicator::push_by_kernel(StreamRef stream, std::span<const CountedCopy> copies, std::size_t longest) {
  copy_between_counters(stream, copies, blocks_for(longest), static_cast<std::uint32_t*>(blocks_done_.data()));
}

int LinkCommunicator::next_place(Peer& p) { return static_cast<int>(p.sent++ % link_collectives::places); }

CountedCopy LinkCommunicator::push(Peer& p, const Piece& piece) {
  CountedCopy copy = p.to->counted_copy(piece.data, piece.bytes, next_place(p));
  copy.freed = take_free_posts(p).last();
  return copy;
}

const std::byte* LinkCommunicator::next_landing(Peer& p, CounterBatch& counters) {
  p.from->await_arrival(counters);
  p.in_use = true;
  return p.landing[static_cast<std::size_t>(p.received++ % link_collectives::places)];
}

// The received data has been used. Its senders wait for this only with their message after the next, so it is soon enough to
// tell them in the next call, where it costs nothing.
void LinkCommunicator::release() {
  for (Peer& p : peers_) {
    if (std::exchange(p.in_use, false)) ++p.untold;
  }
}

CounterBatch LinkCommunicator::take_free_posts(Peer& p) {
  CounterBatch counters;
  for (; p.untold > 0; --p.untold) p.from->post(counters);
  return counters;
}

bool LinkCommunicator::reduce_at_once(StreamRef stream, View data, Reduction reduction) {
  const auto has_places = [](const Peer& p) { return !p.to || (!p.to->places().empty() && !p.landing.empty()); };
  if (!stream.device().is_cuda() || stream.device().shared ||
      data.bytes() > std::min(link_collectives::most_summed_by_one_kernel, longest_by_kernel_) ||
      size() > link_collectives::most_ranks_by_one_kernel || !std::ranges::all_of(peers_, has_places))
    return false;
  std::vector<CountedPart> parts(peers_.size());
  for_each_other([&](int other) {
    Peer& p = peer(other);
    CounterBatch arrival;
    const CountedCopy pushed = push(p, {bytes_of(data), data.bytes()});
    const std::byte* const arrived = next_landing(p, arrival);
    parts[static_cast<std::size_t>(other)] = {pushed, arrival.last(), arrived};
  });
  combine_between_counters(stream, data, parts, reduction);
  release();
  return true;
}

void LinkCommunicator::add_up(StreamRef stream, View data, std::byte* out, const Ranges& ranges, Reduction reduction) {
  for (std::size_t piece = 0; piece < pieces(ranges); ++piece) {
    const Range own = ranges(rank_), mine = piece_of(own, piece);
    const auto theirs = [&](int other) {
      const Range range = piece_of(ranges(other), piece);
      return Piece{bytes_of(data) + range.first, range.bytes};
    };
    const std::vector<const std::byte*> parts =
        trade(stream, theirs, [&](int) { return mine.bytes; }, bytes_of(data) + mine.first);
    if (mine.bytes == 0) continue;
    const auto elements = static_cast<std::int64_t>(mine.bytes / size_of(data.dtype));
    combine(stream, {out + (mine.first - own.first), data.dtype, {elements}}, parts, reduction);
    release();
  }
}

void LinkCommunicator::collect(StreamRef stream, const std::byte* own, std::byte* data, const Ranges& ranges) {
  const Range mine = ranges(rank_);
  for (std::size_t piece = 0; piece < pieces(ranges); ++piece) {
    const Range part = piece_of(mine, piece);
    const std::byte* const own_part = own + (part.first - mine.first);
    const std::vector<const std::byte*> parts = trade(
        stream, [&](int) { return Piece{own_part, part.bytes}; },
        [&](int other) { return piece_of(ranges(other), piece).bytes; }, own_part);
    std::vector<Copy> copies;
    if (own != data + mine.first) copies.push_back({data + part.first, own_part, part.bytes});
    for_each_arrival([&](int other) {
      const Range theirs = piece_of(ranges(other), piece);
      const std::size_t bytes = alone_ ? std::min(theirs.bytes, part.bytes) : theirs.bytes;
      if (bytes > 0) copies.push_back({data + theirs.first, parts[static_cast<std::size_t>(other)], bytes});
    });
    copy_all(stream, copies);
    release();
  }
}

void LinkCommunicator::reduce_scatter(StreamRef stream, View data, View part, Reduction reduction) {
  check_reducible(data);
  check_slices(data, part, size());
  const Ranges slices = [&](int r) { return Range{static_cast<std::size_t>(r) * part.bytes(), part.bytes()}; };
  add_up(stream, data, bytes_of(part), slices, reduction);
}

std::vector<View> LinkCommunicator::reduce_scatter_addends(StreamRef stream, View data, View part) {
  if (part.bytes() == 0 || part.bytes() > slice_bytes_) return Communicator::reduce_scatter_addends(stream, data, part);
  check_reducible(data);
  check_slices(data, part, size());
  const auto slice = [&](int r) { return bytes_of(data) + static_cast<std::size_t>(r) * part.bytes(); };
  std::vector<View> addends;
  for (const std::byte* from : trade(
           stream, [&](int other) { return Piece{slice(other), part.bytes()}; }, [&](int) { return part.bytes(); },
           slice(rank_)))
    addends.emplace_back(const_cast<std::byte*>(from), part.dtype, part.shape);
  return addends;
}

void LinkCommunicator::release_addends(StreamRef) { release(); }

void LinkCommunicator::all_gather(StreamRef stream, View part, View data) {
  check_slices(data, part, size());
  const Ranges slices = [&](int r) { return Range{static_cast<std::size_t>(r) * part.bytes(), part.bytes()}; };
  collect(stream, bytes_of(part), bytes_of(data), slices);
}

void LinkCommunicator::all_gather_into_free(StreamRef stream, View part, View data) {
  const std::byte* const memory = symmetric_memory();
  const std::byte* const begin = bytes_of(data);
  const bool within = symmetric_ && begin >= memory && begin + data.bytes() <= memory + symmetric_bytes_;
  if (!within || alone_ || part.bytes() == 0) return all_gather(stream, part, data);
  check_slices(data, part, size());
  std::byte* const own = bytes_of(data) + static_cast<std::size_t>(rank_) * part.bytes();
  const bool by_kernel = is_by_kernel(stream, part.bytes());
  const auto place = [&](int other) { return symmetric_->of(other) + (own - memory); };
  if (own != bytes_of(part)) stream.copy(own, part.data, part.bytes());
  CounterBatch counters;
  std::vector<CountedCopy> copies;
  for_each_other([&](int other) {
    Peer& p = peer(other);
    if (by_kernel) {
      copies.push_back({{}, {place(other), part.data, part.bytes()}, p.to->next_signal(), take_free_posts(p).last()});
    } else {
      stream.copy(place(other), part.data, part.bytes());
      p.to->signal(counters);
    }
  });
  if (by_kernel) push_by_kernel(stream, copies, part.bytes());
  // After the counters that others wait for, like in trade().
  for_each_other([&](int other) { counters.append(take_free_posts(peer(other))); });
  for_each_arrival([&](int other) { peer(other).from->await_signal(counters); });
  counters.enqueue(stream);
}

void LinkCommunicator::all_reduce(StreamRef stream, View data, Reduction reduction) {
  check_reducible(data);
  if (alone_) {
    const std::vector<const std::byte*> parts(peers_.size(), bytes_of(data));
    return combine(stream, data, parts, reduction);
  }
  if (data.bytes() <= std::min(slice_bytes_, link_collectives::most_reduced_by_all)) {
    if (data.bytes() == 0 || reduce_at_once(stream, data, reduction)) return;
    const Piece whole{bytes_of(data), data.bytes()};
    const std::vector<const std::byte*> parts =
        trade(stream, [&](int) { return whole; }, [&](int) { return whole.bytes; }, whole.data);
    combine(stream, data, parts, reduction);
    return release();
  }
  // Shares as equal as whole steps of 16 bytes allow.
  const std::size_t share = rounded_up((data.bytes() + peers_.size() - 1) / peers_.size());
  const Ranges shares = [&](int r) {
    const std::size_t first = std::min(data.bytes(), static_cast<std::size_t>(r) * share);
    return Range{first, std::min(share, data.bytes() - first)};
  };
  std::byte* const own = bytes_of(data) + shares(rank_).first;
  add_up(stream, data, own, shares, reduction);
  collect(stream, own, bytes_of(data), shares);
}

void LinkCommunicator::all_to_all(StreamRef stream, View send, View receive) {
  check_all_to_all(send, receive, size());
  const std::size_t slice = send.bytes() / peers_.size();
  const auto at = [&](const View& view, int r) { return bytes_of(view) + static_cast<std::size_t>(r) * slice; };
  for (std::size_t done = 0; done < slice; done += slice_bytes_) {
    const std::size_t bytes = std::min(slice_bytes_, slice - done);
    const std::vector<const std::byte*> parts = trade(
        stream, [&](int other) { return Piece{at(send, other) + done, bytes}; }, [&](int) { return bytes; },
        at(send, rank_) + done);
    std::vector<Copy> copies;
    for (int r = 0; r < size(); ++r)
      copies.push_back({at(receive, r) + done, alone_ ? at(send, r) + done : parts[static_cast<std::size_t>(r)], bytes});
    copy_all(stream, copies);
    release();
  }
}

void LinkCommunicator::send(StreamRef, View, int to) { check_peer(to, rank_, size(), false); }
void LinkCommunicator::receive(StreamRef, View, int from) { check_peer(from, rank_, size(), false); }

void LinkCommunicator::abort() noexcept {
  for (const std::unique_ptr<Link>& link : links_.list) link->abort();
}

}  // namespace plait::comm::p2p
