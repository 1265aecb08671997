#include "comm/p2p/link.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <limits>

#include "comm/communicator.h"
#include "comm/meeting.h"
#include "comm/p2p/links.h"
#include "comm/p2p/mailbox.h"
#include "comm/p2p/mover.h"
#include "comm/p2p/trial.h"
#include "core/collective.h"
#include "core/error.h"

namespace plait::comm::p2p {

void declare(auto& field, Of<Place> auto& place) {
  constexpr record::Whole bytes =
      record::whole(0, std::int64_t{1} << 42);  // of as many as a word holds their sum fits into 64 bits
  field("kind", place.id.kind, record::whole(0, std::numeric_limits<int>::max()));
  field("index", place.id.index, record::whole(0, std::numeric_limits<int>::max()));
  field("slot", place.id.slot, record::whole(0, std::numeric_limits<int>::max()));
  field("bytes", place.bytes, bytes);
  field("message_offset", place.message_offset, bytes);
}

namespace {

// The time limit of one step of making a link is this part of the whole, so that a peer that fails in the middle of it is
// noticed before any rank gives up.
constexpr int attempts_per_timeout = 3;
constexpr std::chrono::milliseconds shortest_attempt{5'000};  // unless the time limit is shorter

std::chrono::milliseconds attempt_time(std::chrono::milliseconds timeout) {
  return std::max(timeout / attempts_per_timeout, std::min(timeout, shortest_attempt));
}

// The longest description of a problem at the other end.
constexpr std::size_t longest_problem = 4096;
// A mover that takes SMs from compute has to be this much faster than the copy engine to be chosen by itself.
constexpr double worth_an_sm = 0.9;

struct Attempt {
  std::unique_ptr<Link> link;
  std::string problem;  // empty: it works
  double microseconds = 0;
};

// The result of an attempt at one end.
struct Verdict {
  double microseconds = 0;
  std::string problem;
};

void declare(auto& field, Of<Verdict> auto& verdict) {
  field("microseconds", verdict.microseconds);
  field("problem", verdict.problem, ToldText{longest_problem});
}

// The number of links that each of the bridges in question already relays for, as one end counts.
struct BridgeUse {
  std::vector<std::int64_t> links;
};

void declare(auto& field, Of<BridgeUse> auto& use) {
  field("links", use.links, record::at_most(64, record::whole(0, 1 << 24)));
}

Carrier carrier_of(Transport transport, DeviceKind kind) {
  if (transport == Transport::host) return Carrier::shm;
  return kind == DeviceKind::cuda ? Carrier::p2p : Carrier::memory;
}

Paths mailbox_paths(const LinkReport& report) {
  const std::string via = to_string(report.transport) + (report.bridge.empty() ? "" : " by " + report.bridge);
  return {.by = "link", .pairs = {{report.from, report.to, carrier_of(report.transport, report.facts.sender.kind), via, 0}}};
}

class LinkSetup {
 public:
  LinkSetup(const LinkSpec& spec, Rendezvous& store)
      : spec_(spec),
        store_(store),
        meeting_(store, spec.name, spec.rank, {spec.from, spec.to}, spec.timeout),
        attempt_(store, "memory", spec.rank, {spec.from, spec.to}, attempt_time(spec.timeout)),
        end_(spec.rank == spec.from ? End::sender : End::receiver),
        shared_(spec.shared ? spec.shared : std::make_shared<SharedByLinks>(spec.device)) {
    require(spec.from != spec.to && (spec.rank == spec.from || spec.rank == spec.to), "make_link: this rank is neither end");
  }

  std::pair<std::unique_ptr<Link>, LinkReport> make() {
    LinkReport report{.from = spec_.from, .to = spec_.to, .facts = exchange_facts(), .bridge = {}, .better = {}};
    report_ = &report;
    meeting_.agree("message_bytes", spec_.message_bytes);
    places_ = agreed_places();
    const std::vector<Candidate> all = candidates(report.facts);
    const std::vector<Transport> possible = choices(report.facts, all, spec_.transport);
    for (const Candidate& candidate : all) {
      if (!spec_.transport && !candidate.obstacle.empty()) report.better.push_back({candidate.transport, candidate.obstacle});
    }
    for (const Transport transport : possible) {
      Attempt best;
      std::string problems;
      for (const Mover mover : movers(transport)) {
        Attempt attempt = try_out(transport, mover);
        if (!attempt.problem.empty()) {
          problems += (problems.empty() ? "" : "; ") + (to_string(mover) + ": " + attempt.problem);
          continue;
        }
        const bool faster =
            !best.link || attempt.microseconds < best.microseconds * (mover == Mover::copy_engine ? 1 : worth_an_sm);
        if (!faster) continue;
        best = std::move(attempt);
        report.mover = mover;
      }
      if (best.link) {
        if (transport == Transport::relay) ++shared_->relayed_by(report.bridge);
        report.transport = transport;
        report.trial_microseconds = best.microseconds;
        report.trial_gb_per_s = best.microseconds > 0 ? static_cast<double>(spec_.message_bytes) / best.microseconds / 1e3 : 0;
        keep_better_than(transport, report.better);
        if (transport != Transport::nccl) report.paths = mailbox_paths(report);
        // Freeing GPU memory waits for all work of its streams, and keeps every other thread from enqueueing work meanwhile. So
        // candidates that were tried and not chosen are gone on both ends before either uses the link.
        meeting_.meet("settled");
        return {std::move(best.link), std::move(report)};
      }
      if (spec_.transport)
        throw NoTransport(fmt::format("{}: comm.p2p={} cannot be used: {}", label(), to_string(transport), problems));
      report.better.push_back({transport, problems});
    }
    throw NoTransport(label() + ": no transport works: " + describe(report));
  }

 private:
  std::string label() const { return fmt::format("link {} -> {}", spec_.from, spec_.to); }
  std::string other_side() const { return end_ == End::sender ? "receiver" : "sender"; }

  // Sends a word to the other end and returns the other end's.
  template <typename T>
  T swap(const std::string& topic, const T& own) {
    meeting_.say(topic, own);
    return meeting_.hear<T>(topic, meeting_.peer());
  }

  PairFacts exchange_facts() {
    const EndFacts own = end_facts(spec_.rank, spec_.device, spec_.peer_access);
    const EndFacts other = swap("end", own);
    const PathFacts there = path_facts(own, other);
    const PathFacts back = swap("path", there);
    const bool sends = end_ == End::sender;
    return {sends ? own : other, sends ? other : own, sends ? there : back, sends ? back : there};
  }

  // The bridge, among the best, that relays for the fewest links of both ends.
  std::string agreed_bridge() {
    if (!bridge_.empty()) return bridge_;
    const std::vector<std::string> best = report_->facts.best_bridges();
    BridgeUse own;
    for (const std::string& bridge : best) own.links.push_back(shared_->relayed_by(bridge));
    const BridgeUse other = swap("bridge use", own);
    if (other.links.size() != best.size()) throw CommError(label() + ": the two ends do not know the same bridges");
    std::size_t least = 0;
    const auto use = [&](std::size_t i) { return own.links[i] + other.links[i]; };
    for (std::size_t i = 1; i < best.size(); ++i) least = use(i) < use(least) ? i : least;
    return bridge_ = best[least];
  }

  // The receiver's places, which the sender has to know to put messages there.
  std::vector<Place> agreed_places() {
    std::vector<Place> theirs = swap("places", spec_.places);
    std::vector<Place> agreed = end_ == End::receiver ? spec_.places : theirs;
    for (const Place& place : agreed) {
      if (place.message_offset > place.bytes || spec_.message_bytes > place.bytes - place.message_offset)
        throw CommError(fmt::format("{}: a message of {} bytes does not fit at byte {} of a place of {}", label(),
                                    spec_.message_bytes, place.message_offset, place.bytes));
    }
    return agreed;
  }

  std::vector<Place> places_by(Transport transport, Mover mover) const {
    return arrives_in_place(transport, mover, spec_.device.kind) ? places_ : std::vector<Place>{};
  }

  // The movers to try, the preferred one first.
  std::vector<Mover> movers(Transport transport) const {
    // Two hops by kernels would take SMs on both sides without any gain: the slower hop is the wire's anyway.
    const bool by_kernel = spec_.device.is_cuda() && transport != Transport::nccl && takes_one_hop(transport);
    if (spec_.mover && *spec_.mover != Mover::copy_engine && !spec_.device.is_cuda()) {
      throw CommError(fmt::format("{}: comm.mover={} is a kernel and needs GPUs", label(), to_string(*spec_.mover)));
    }
    if (spec_.mover) return {*spec_.mover};
    if (!by_kernel || spec_.message_bytes == 0) return {Mover::copy_engine};
    if (!places_by(transport, Mover::copy_engine).empty()) return {Mover::copy_engine, Mover::sm_write};  // in place
    return {Mover::copy_engine, Mover::sm_write, Mover::sm_read};
  }

  // Makes a link, tries it, and agrees with the other end on the result.
  Attempt try_out(Transport transport, Mover mover) {
    const std::string name = to_string(transport) + "." + to_string(mover);
    Attempt attempt;
    try {
      attempt.link = transport == Transport::nccl ? by_communicator() : by_mailbox(transport, mover, name);
    } catch (const Error& error) {
      attempt.problem = error.what();
    }
    agree(attempt, name + "/made");
    if (!attempt.link) return attempt;
    try {
      const TrialResult trial =
          synchronize_trial(*attempt.link, end_, spec_.device, spec_.message_bytes, spec_.slots, attempt_.timeout());
      attempt.problem = trial.problem;
      attempt.microseconds = trial.microseconds;
    } catch (const Error& error) {
      attempt.problem = error.what();
    }
    agree(attempt, name + "/tried");
    return attempt;
  }

  // A problem of either end is one of both, and the time is the receiver's.
  void agree(Attempt& attempt, const std::string& name) {
    const Verdict other = swap(name, Verdict{attempt.microseconds, attempt.problem});
    if (attempt.problem.empty() && !other.problem.empty()) attempt.problem = "the " + other_side() + ": " + other.problem;
    if (!attempt.problem.empty()) {
      attempt.link.reset();
    } else if (end_ == End::sender) {
      attempt.microseconds = other.microseconds;
    }
  }

  std::unique_ptr<Link> by_mailbox(Transport transport, Mover mover, const std::string& name) {
    MailboxLinkOptions options;
    options.announce = spec_.announce;
    options.places = places_by(transport, mover);
    // A short message's other hop, within one GPU, is a kernel too: it finishes before a copy engine would have started.
    const bool moves = (mover == Mover::sm_write && end_ == End::sender) || (mover == Mover::sm_read && end_ == End::receiver);
    options.by_kernel = moves || (mover != Mover::copy_engine && spec_.message_bytes <= link_collectives::longest_short_push);
    if (transport == Transport::ipc) {
      options.goodbye = [&store = store_, link = spec_.name, topic = name + "/gone", rank = spec_.rank,
                         ends = std::vector{spec_.from, spec_.to}](std::chrono::milliseconds time) {
        try {
          Meeting(store, link, rank, ends, time).meet(topic);
        } catch (const Error&) {
          return;  // the peer is gone, or the job is
        }
      };
    }
    return make_mailbox_link({end_, spec_.device, label(), shared_},
                             mailbox_memory(transport, mover, name, spec_.message_bytes, options.places), options);
  }

  MailboxMemory mailbox_memory(Transport transport, Mover mover, const std::string& name, std::size_t message_bytes,
                               const std::vector<Place>& places) {
    HandleExchange exchange(attempt_);
    const EndFacts& peer = end_ == End::sender ? report_->facts.receiver : report_->facts.sender;
    MailboxSpec mailbox{.name = spec_.name + "/" + name,
                        .transport = transport,
                        .mover = mover,
                        .message_bytes = message_bytes,
                        .slots = spec_.slots,
                        .places = places,
                        .device = spec_.device,
                        .peer_device = {peer.kind, peer.ordinal},
                        .fabric = report_->facts.sender.fabric && report_->facts.receiver.fabric,
                        .bridge = {}};
    if (transport == Transport::relay) {
      report_->bridge = agreed_bridge();
      if (end_ == End::receiver) mailbox.bridge = cuda_device_on_bus(report_->bridge);
    }
    return make_mailbox_memory(end_, mailbox, exchange);
  }

  std::unique_ptr<Link> by_communicator() {
    std::unique_ptr<Mailbox> beacon;
    if (spec_.announce && report_->facts.share_sockets() && report_->facts.sender.stream_memory_operations &&
        report_->facts.receiver.stream_memory_operations) {
      beacon = std::make_unique<Mailbox>(end_, mailbox_memory(Transport::host, Mover::copy_engine, "beacon", 0, {}),
                                         shared_->release_stream(), false);
    }
    auto pair = make_communicator({.name = spec_.name,
                                   .rank = end_ == End::sender ? 0 : 1,
                                   .size = 2,
                                   .device = spec_.device,
                                   .timeout = spec_.timeout,
                                   .point_to_point = true,
                                   .max_ctas = spec_.max_ctas,
                                   .host_interface = spec_.host_interface},
                                  store_);
    report_->paths = pair->paths();
    for (PairPath& path : report_->paths.pairs) {
      path.from = path.from == 0 ? spec_.from : spec_.to;
      path.to = path.to == 0 ? spec_.from : spec_.to;
    }
    return make_communicator_link({end_, spec_.device, label(), shared_}, std::move(pair), std::move(beacon));
  }

  // Keeps only the transports that are better than the chosen one.
  static void keep_better_than(Transport chosen, std::vector<PassedOver>& passed_over) {
    std::erase_if(passed_over, [&](const PassedOver& p) { return p.transport > chosen; });
  }

  const LinkSpec& spec_;
  Rendezvous& store_;
  Meeting meeting_;  // between the two ends
  Meeting attempt_;  // also between the two, for one attempt's memory
  const End end_;
  const std::shared_ptr<SharedByLinks> shared_;
  LinkReport* report_ = nullptr;
  std::string bridge_;
  std::vector<Place> places_;
};

std::string mover_text(const LinkReport& report) {
  if (report.transport == Transport::nccl) return "";
  const bool gpus = report.facts.sender.kind == DeviceKind::cuda;
  return ", " + (gpus ? to_string(report.mover) : std::string("memcpy"));
}

}  // namespace

void Link::post(StreamRef stream) {
  CounterBatch counters;
  post(counters);
  counters.enqueue(stream);
}

void SharedByLinks::begin_to_go() { gone_by_ = std::chrono::steady_clock::now() + time_to_go_; }

std::chrono::milliseconds SharedByLinks::left_to_go() const {
  if (!gone_by_) return time_to_go_;
  const auto left = *gone_by_ - std::chrono::steady_clock::now();
  return std::max(std::chrono::milliseconds(0), std::chrono::duration_cast<std::chrono::milliseconds>(left));
}

std::unique_ptr<Link> make_link(const LinkSpec& spec, Rendezvous& store) {
  auto [link, report] = LinkSetup(spec, store).make();
  link->report_ = std::move(report);
  return std::move(link);
}

std::string describe(const LinkReport& report) {
  std::string text = fmt::format("{} -> {}  {}  {}{}", report.from, report.to, report.facts.link(), to_string(report.transport),
                                 mover_text(report));
  if (!report.bridge.empty()) text += " by " + report.bridge;
  if (report.trial_microseconds > 0)
    text += fmt::format("  {:.1f} us, {:.1f} GB/s", report.trial_microseconds, report.trial_gb_per_s);
  for (const PassedOver& p : report.better) text += fmt::format("\n      not {}: {}", to_string(p.transport), p.reason);
  return text;
}

}  // namespace plait::comm::p2p
