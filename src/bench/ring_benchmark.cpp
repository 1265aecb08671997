#include "bench/ring_benchmark.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/pattern.h"
#include "bench/sizes.h"
#include "comm/communicator.h"
#include "core/error.h"
#include "core/philox.h"
#include "core/statistics.h"
#include "core/terminal.h"
#include "core/text_table.h"

namespace plait::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t batch = 64;  // messages that arrive before they are compared
constexpr int ring_slots = 2;
constexpr std::size_t start_unit = 16;  // messages start aligned, as real ones do
constexpr std::uint64_t start_count = 65'521;

// The position in the pattern where a message begins: different for neighbours of any kind.
std::uint64_t start_of(int hop, std::int64_t message) {
  return (static_cast<std::uint64_t>(message) * 31 + static_cast<std::uint64_t>(hop) * 9'973) % start_count * start_unit;
}

struct Hop {
  int number = 0, from = 0, to = 0;
};

// What a rank has measured of the hop that ends at it.
struct MeasuredHop {
  int from = 0, to = 0;
  std::string link;
  std::int64_t messages = 0, checked_bytes = 0;
  double microseconds = 0, gb_per_s = 0;
};

void declare(auto& field, Of<MeasuredHop> auto& hop) {
  constexpr record::Whole rank = record::whole(0, std::numeric_limits<int>::max());
  field("from", hop.from, rank);
  field("to", hop.to, rank);
  field("link", hop.link);
  field("messages", hop.messages, record::whole(0));
  field("checked_bytes", hop.checked_bytes, record::whole(0));
  field("microseconds", hop.microseconds);
  field("gb_per_s", hop.gb_per_s);
}

// One rank's two hops by one method.
class RingEnd {
 public:
  RingEnd(const RingBenchmarkRequest& request, launch::RankContext& rank)
      : request_(request),
        rank_(rank),
        memory_(rank.device),
        traffic_(memory_),
        pattern_(Pattern::random(request.seed)),
        source_(memory_.allocate(request.max_bytes + start_unit * start_count)),
        arrivals_(memory_.allocate(batch * slot())),
        host_(memory_.allocate(batch * slot(), MemoryKind::pinned_host)),
        out_(rank.device, StreamPriority::high),
        in_(rank.device, StreamPriority::high) {
    traffic_.synchronize_fill(out_, pattern_, {source_.data(), DType::u8, {static_cast<std::int64_t>(source_.bytes())}}, 0);
  }

  Hop hop(int number) const { return {number, number, (number + 1) % rank_.size}; }

  // Returns "" or the obstacle to this rank's hops.
  std::string make_links(const LinkMethod& method) {
    links_.drop();
    std::string problem;
    for (int number = 0; number < rank_.size; ++number) {
      const Hop h = hop(number);
      if (rank_.rank != h.from && rank_.rank != h.to) continue;
      try {
        links_.make(rank_, link_of(method, h), request_.make_link);
      } catch (const CommError& error) {
        if (rank_.life->is_aborted()) throw;
        problem = error.what();
      }
    }
    return problem;
  }

  void drop_links() { links_.drop(); }

  // Of the hop that ends here.
  MeasuredHop synchronize_messages(const LinkMethod& method, const std::string& path) {
    return run_on({out_, in_}, rank_, [&] { return exchange(method, path); });
  }

 private:
  std::size_t slot() const { return (request_.max_bytes + 255) / 256 * 256; }

  comm::p2p::LinkSpec link_of(const LinkMethod& method, const Hop& h) const {
    comm::p2p::LinkSpec link;
    link.name = fmt::format("ring/{}/{}-{}", method.name(), h.from, h.to);
    link.from = h.from;
    link.to = h.to;
    link.message_bytes = request_.max_bytes;
    link.transport = method.transport;
    link.mover = method.mover;
    link.slots = ring_slots;
    link.timeout = request_.ranks.timeout;
    link.host_interface = request_.ranks.interface;
    return link;
  }

  View outgoing(int hop_number, std::int64_t message) const {
    const auto bytes = static_cast<std::int64_t>(ring_message_bytes(request_, hop_number, message));
    return {static_cast<std::byte*>(source_.data()) + start_of(hop_number, message), DType::u8, {bytes}};
  }

  MeasuredHop exchange(const LinkMethod& method, const std::string& path) {
    const Hop leaving = hop(rank_.rank), coming = hop((rank_.rank + rank_.size - 1) % rank_.size);
    const StreamRef out = out_.ref(), in = in_.ref();
    Event sent(rank_.device), first(rank_.device, EventTiming::on), last(rank_.device, EventTiming::on), copied(rank_.device);
    double microseconds = 0, timed_bytes = 0;
    std::int64_t timed_messages = 0;
    std::size_t checked = 0;
    const std::string what = fmt::format("ring by {}", method.name());
    for (std::int64_t begin = 0; begin < request_.messages; begin += batch) {
      const std::int64_t end = std::min(begin + batch, request_.messages);
      for (std::int64_t m = begin; m < end; ++m) {
        links_.out()->send(out, outgoing(leaving.number, m));
        const std::size_t bytes = ring_message_bytes(request_, coming.number, m);
        links_.in()->receive(in, {at(arrivals_, m - begin), DType::u8, {static_cast<std::int64_t>(bytes)}});
        if (m == begin) {
          in.record(first);  // the stream may have waited for the sender
        } else {
          timed_bytes += static_cast<double>(bytes);
          ++timed_messages;
        }
      }
      in.record(last);
      out.record(sent);
      for (std::int64_t m = begin; m < end; ++m)
        in.copy(at(host_, m - begin), at(arrivals_, m - begin), ring_message_bytes(request_, coming.number, m));
      in.record(copied);
      synchronize_within(copied, request_.ranks.timeout, what);
      synchronize_within(sent, request_.ranks.timeout, what);
      microseconds += 1e3 * static_cast<double>(elapsed_ms(first, last));
      for (std::int64_t m = begin; m < end; ++m) checked += check(method, coming, m, at(host_, m - begin));
    }
    return {.from = coming.from,
            .to = coming.to,
            .link = path,
            .messages = request_.messages,
            .checked_bytes = static_cast<std::int64_t>(checked),
            .microseconds = timed_messages > 0 ? microseconds / static_cast<double>(timed_messages) : 0,
            .gb_per_s = gb_per_s(timed_bytes, microseconds)};
  }

  std::byte* at(const Buffer& buffer, std::int64_t place) const {
    return static_cast<std::byte*>(buffer.data()) + static_cast<std::size_t>(place) * slot();
  }

  std::size_t check(const LinkMethod& method, const Hop& h, std::int64_t message, const std::byte* data) const {
    const std::size_t bytes = ring_message_bytes(request_, h.number, message);
    const auto wrong = pattern_.find_wrong({data, bytes}, start_of(h.number, message));
    if (!wrong) return bytes;
    throw CommError(fmt::format(
        "ring by {}, hop {} -> {}: message {} of {} bytes arrived wrong: byte {} is {:#04x}, not {:#04x}", method.name(),
        h.from, h.to, message, bytes, wrong->at, static_cast<unsigned>(wrong->is), static_cast<unsigned>(wrong->expected)));
  }

  const RingBenchmarkRequest& request_;
  launch::RankContext& rank_;
  DeviceMemory memory_;
  PatternTraffic traffic_;
  Pattern pattern_;
  Buffer source_, arrivals_, host_;
  Stream out_, in_;
  LinkEnds links_;  // made in the order of the hops
};

// Methods in the order of the first hop's, each with what stands in its way on any.
std::vector<MethodChoice> methods_of_ring(const comm::p2p::JobFacts& facts, int ranks, const MethodFilter& filter) {
  std::vector<MethodChoice> methods = methods_of(facts.pair(0, 1 % ranks), filter);
  for (MethodChoice& choice : methods) {
    for (int from = 0; from < ranks && choice.obstacle.empty(); ++from) {
      const int to = (from + 1) % ranks;
      const auto there = methods_of(facts.pair(from, to), filter);
      const auto same = std::find_if(there.begin(), there.end(), [&](const MethodChoice& c) {
        return c.method.transport == choice.method.transport && (!c.obstacle.empty() || c.method.mover == choice.method.mover);
      });
      if (same == there.end())
        choice.obstacle = fmt::format("not on hop {} -> {}", from, to);
      else if (!same->obstacle.empty())
        choice.obstacle = fmt::format("hop {} -> {}: {}", from, to, same->obstacle);
    }
  }
  return methods;
}

Json run_rank(const RingBenchmarkRequest& request, const launch::LaunchPlan& plan, launch::RankContext& rank,
              const BenchOutput& output) {
  comm::Meeting meeting = rank.meeting("ring", request.ranks.timeout);
  const auto busy = meeting.busy();  // messages have no time limit
  const comm::p2p::JobFacts facts(rank.device, PeerAccessUse::automatic, meeting);
  const std::string path = facts.pair((rank.rank + rank.size - 1) % rank.size, rank.rank).link();
  const std::vector<MethodChoice> methods = methods_of_ring(facts, rank.size, request.filter);
  if (methods.empty()) throw ConfigError("bench ring: --transports and --movers leave nothing to measure");
  RingEnd end(request, rank);
  Json json = bench_head("ring", plan, rank);
  json["messages"] = request.messages;
  json["min_bytes"] = request.min_bytes;
  json["max_bytes"] = request.max_bytes;
  json["seed"] = request.seed;
  json["methods"] = Json::array();
  for (const MethodChoice& choice : methods) {
    const LinkMethod& method = choice.method;
    if (rank.is_main && output.note) output.note(method.name());
    std::string obstacle = choice.obstacle;
    Json hops = Json::array();
    if (obstacle.empty()) {
      for (const std::string& problem : meeting.gather(method.name() + "/made", end.make_links(method))) {
        if (obstacle.empty()) obstacle = problem;
      }
      if (obstacle.empty()) {
        const MeasuredHop own = end.synchronize_messages(method, path);
        // A rank tells of the hop that ends at it; in the order in which messages go round, the first is what arrives at
        // rank 1.
        for (const MeasuredHop& hop : meeting.gather(method.name() + "/done", own)) hops.push_back(record_json(hop));
        std::rotate(hops.begin(), hops.begin() + 1, hops.end());
      }
      end.drop_links();
    }
    Json row;
    row["transport"] = method.transport_text();
    row["mover"] = method.mover_text();
    row["available"] = obstacle.empty();
    if (!obstacle.empty()) row["reason"] = obstacle;
    row["hops"] = std::move(hops);
    json["methods"].push_back(std::move(row));
  }
  return json;
}

}  // namespace

std::size_t ring_message_bytes(const RingBenchmarkRequest& request, int hop, std::int64_t message) {
  const Random random(request.seed, "ring");
  const double place =
      static_cast<double>(random.bits(static_cast<std::uint64_t>(message), static_cast<std::uint64_t>(hop)) >> 11) * 0x1p-53;
  const double low = std::log2(static_cast<double>(request.min_bytes)),
               high = std::log2(static_cast<double>(request.max_bytes) + 1);
  const auto bytes = static_cast<std::size_t>(std::exp2(low + place * (high - low)));
  return std::clamp(bytes, request.min_bytes, request.max_bytes);
}

int benchmark_ring(const RingBenchmarkRequest& request, const BenchOutput& output) {
  check(request.filter);
  if (request.min_bytes == 0 || request.min_bytes > request.max_bytes) {
    throw ConfigError(
        {{"--min", format_size(request.min_bytes), "must not be above --max, " + format_size(request.max_bytes), "", 0}});
  }
  const launch::LaunchPlan plan = plan_bench(request.ranks, request.argv);
  return run_bench(plan, request.argv, output,
                   [&](launch::RankContext& rank) { return run_rank(request, plan, rank, output); });
}

std::string ring_table(const Json& result, int width) {
  std::string out =
      folded(head_text(result) + fmt::format("; {} messages of {} to {} from every rank to the next; every byte compared",
                                             result["messages"].get<std::int64_t>(),
                                             format_size(result["min_bytes"].get<std::size_t>()),
                                             format_size(result["max_bytes"].get<std::size_t>())),
             width, 4) +
      "\n";
  const std::string library = library_name(result);
  TextTable table({{"transport", Align::left},
                   {"mover", Align::left},
                   {"hop", Align::left},
                   {"link", Align::left},
                   {"messages"},
                   {"bytes right"},
                   {"us/message"},
                   {"GB/s"}});
  std::string without;
  for (const Json& method : result["methods"]) {
    const std::string transport = transport_name(method, library), mover = method["mover"].get<std::string>();
    if (!method["available"].get<bool>())
      without += folded(transport + " " + mover + ": " + method["reason"].get<std::string>(), width, 4) + "\n";
    for (const Json& hop : method["hops"]) {
      table.add({transport, mover, fmt::format("{} -> {}", hop["from"].get<int>(), hop["to"].get<int>()),
                 hop["link"].get<std::string>(), fmt::format("{}", hop["messages"].get<std::int64_t>()),
                 fmt::format("{}", hop["checked_bytes"].get<std::int64_t>()),
                 fmt::format("{:.2f}", hop["microseconds"].get<double>()),
                 fmt::format("{:.2f}", hop["gb_per_s"].get<double>())});
    }
  }
  return out + table.text(width) + without;
}

}  // namespace plait::bench
