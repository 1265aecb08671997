#include "bench/concurrent_benchmark.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "bench/pattern.h"
#include "bench/sizes.h"
#include "comm/p2p/facts.h"
#include "core/error.h"
#include "core/statistics.h"
#include "core/text_table.h"

namespace plait::bench {
namespace {

using Json = nlohmann::ordered_json;
using comm::p2p::Link;
using Pairs = std::vector<std::pair<int, int>>;  // from, to

constexpr int link_places = 2, uncounted = 4, most_timed = 32;
constexpr std::size_t gpu_message = std::size_t{64} << 20, cpu_message = std::size_t{1} << 20;
constexpr std::uint64_t sender_shift = 500'009;  // distinguishes the contents of different senders

// How messages of a pair travel, as their sender tells.
struct PairWay {
  std::string transport;
  std::optional<double> nominal;  // GB/s
};

void declare(auto& field, Of<PairWay> auto& way) {
  field("transport", way.transport);
  field("nominal", way.nominal);
}

class Concurrent {
 public:
  Concurrent(const ConcurrentBenchmarkRequest& request, const launch::LaunchPlan& plan, launch::RankContext& rank,
             const BenchOutput& output)
      : request_(request),
        plan_(plan),
        rank_(rank),
        output_(output),
        meeting_(rank.meeting("p2p concurrent", request.ranks.timeout)),
        busy_(meeting_.busy()),
        bytes_(request.bytes > 0       ? request.bytes
               : rank.device.is_cuda() ? gpu_message
                                       : cpu_message),
        memory_(rank.device),
        traffic_(memory_),
        pattern_(Pattern::random(1)),
        links_(rank.device) {
    const std::size_t needed = bytes_ * (1 + (link_places + 1) * static_cast<std::size_t>(rank.size - 1));
    const std::size_t free = least_free_bytes(rank, meeting_);
    if (static_cast<double>(needed) > usable_memory * static_cast<double>(free)) {
      throw DeviceError(
          fmt::format("bench p2p --concurrent: messages of {} take {} MB on each rank, which has {} MB free: ask for "
                      "smaller ones (--sizes)",
                      format_size(bytes_), needed >> 20, free >> 20));
    }
    source_ = memory_.allocate(bytes_);
    peers_.resize(static_cast<std::size_t>(rank.size));
  }

  Json run() {
    const comm::p2p::JobFacts facts(rank_.device, request_.ranks.peer_access, meeting_);
    make_links();
    return rank_.life->run([&] { return measure(facts); },
                           [&] {
                             for (const Peer& p : peers_) {
                               if (p.out_stream) runtime::synchronize_aborted(*p.out_stream);
                               if (p.in_stream) runtime::synchronize_aborted(*p.in_stream);
                             }
                           });
  }

 private:
  struct Peer {
    Link *out = nullptr, *in = nullptr;
    Buffer target;  // destination of messages that come by slots
    std::optional<Stream> out_stream, in_stream;
  };

  // The links in the order in which both ends make and destroy them.
  struct Links {
    explicit Links(Device device) : shared(std::make_shared<comm::p2p::SharedByLinks>(device)) {}
    ~Links() {
      shared->begin_to_go();
      for (std::shared_ptr<Link>& link : list) link.reset();
    }
    const std::shared_ptr<comm::p2p::SharedByLinks> shared;
    std::vector<std::shared_ptr<Link>> list;
  };

  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }

  // All pairs in one order, so that no two ranks wait for each other's next.
  void make_links() {
    for (int low = 0; low < rank_.size; ++low) {
      for (int high = low + 1; high < rank_.size; ++high) {
        if (low != rank_.rank && high != rank_.rank) continue;
        for (const auto& [from, to] : {std::pair{low, high}, {high, low}}) {
          comm::p2p::LinkSpec link;
          link.name = fmt::format("concurrent/{}-{}", from, to);
          link.from = from, link.to = to, link.rank = rank_.rank;
          link.device = rank_.device;
          link.message_bytes = bytes_;
          link.peer_access = request_.ranks.peer_access;
          link.slots = link_places;
          for (int n = 0; to == rank_.rank && n < link_places; ++n) link.places.push_back({{.slot = n}, bytes_, 0});
          link.announce = false;
          link.timeout = request_.ranks.timeout;
          link.host_interface = request_.ranks.interface;
          Peer& p = peer(from == rank_.rank ? to : from);
          link.shared = links_.shared;
          const std::shared_ptr<Link> made = links_.list.emplace_back(request_.make_link(link, *rank_.rendezvous));
          abort_with_rank(rank_, made);
          (from == rank_.rank ? p.out : p.in) = made.get();
          (from == rank_.rank ? p.out_stream : p.in_stream).emplace(rank_.device, StreamPriority::high);
          if (to == rank_.rank && made->places().empty()) p.target = memory_.allocate(bytes_);
        }
      }
    }
    const StreamRef any = peer(rank_.rank == 0 ? 1 : 0).out_stream->ref();
    traffic_.synchronize_fill(any, pattern_, whole(source_.data()), pattern_of(rank_.rank));
  }

  View whole(void* data) const { return {data, DType::u8, {static_cast<std::int64_t>(bytes_)}}; }
  static std::uint64_t pattern_of(int rank) { return static_cast<std::uint64_t>(rank) * sender_shift; }
  static int place_of(const Link& link, int message) { return link.places().empty() ? -1 : message % link_places; }
  View arrival(Peer& p, int message) {
    const int place = place_of(*p.in, message);
    return whole(place < 0 ? p.target.data() : p.in->memory_of(place));
  }

  // Microseconds per message for each of `pairs` that ends here, by sending rank; all run at once.
  std::vector<double> exchange(const Pairs& pairs) {
    struct Timed {
      explicit Timed(Device device) : start(device, EventTiming::on), stop(device, EventTiming::on) {}
      Event start, stop;
    };
    const std::size_t budget = rank_.device.is_cuda() ? gpu_budget : cpu_budget;
    const int messages = std::min(most_timed, messages_for(bytes_, budget)), all = uncounted + messages;
    std::map<int, Timed> arriving;
    for (const auto& [from, to] : pairs) {
      if (to == rank_.rank) arriving.try_emplace(from, rank_.device);
    }
    Event sent(rank_.device);
    for (int message = 0; message < all; ++message) {
      for (const auto& [from, to] : pairs) {
        if (from == rank_.rank) {
          Peer& p = peer(to);
          p.out->send(*p.out_stream, whole(source_.data()), place_of(*p.out, message));
        } else if (to == rank_.rank) {
          Peer& p = peer(from);
          const StreamRef in = *p.in_stream;
          if (message == uncounted) in.record(arriving.at(from).start);
          if (!p.in->places().empty()) {
            if (message == 0) p.in->post(in);
            if (message + 1 < all) p.in->post(in);  // in the place of the previous message
          }
          p.in->receive(in, arrival(p, message), nullptr, place_of(*p.in, message));
        }
      }
    }
    std::vector<double> microseconds(peers_.size());
    for (auto& [from, timed] : arriving) peer(from).in_stream->ref().record(timed.stop);
    for (auto& [from, timed] : arriving) {
      synchronize_within(timed.stop, request_.ranks.timeout,
                         fmt::format("{} -> {}, among {} pairs at once", from, rank_.rank, pairs.size()));
      microseconds[static_cast<std::size_t>(from)] = 1e3 * static_cast<double>(elapsed_ms(timed.start, timed.stop)) / messages;
      for (const int message : {all - 1, all - 2}) check(from, message);
    }
    for (const auto& [from, to] : pairs) {
      if (from != rank_.rank) continue;
      peer(to).out_stream->ref().record(sent);
      synchronize_within(sent, request_.ranks.timeout, fmt::format("{} -> {}", from, to));
    }
    return microseconds;
  }

  void check(int from, int message) {
    Peer& p = peer(from);
    const auto wrong = traffic_.synchronize_find_wrong(*p.in_stream, pattern_, arrival(p, message), pattern_of(from));
    if (wrong)
      throw CommError(fmt::format("{} -> {}: rank {} received wrong data: byte {} of message {} is {:#04x}, not {:#04x}", from,
                                  rank_.rank, rank_.rank, wrong->at, message, static_cast<unsigned>(wrong->is),
                                  static_cast<unsigned>(wrong->expected)));
  }

  // The medians over rounds of each pair's time, the same on all ranks.
  std::map<std::pair<int, int>, double> microseconds_of(const std::string& name, const Pairs& pairs) {
    std::map<std::pair<int, int>, std::vector<double>> samples;
    for (int round = 0; round < request_.rounds; ++round) {
      const std::string topic = fmt::format("{}/{}", name, round);
      meeting_.meet(topic + "/begin");
      const auto told = meeting_.gather(topic, exchange(pairs));
      for (const auto& [from, to] : pairs) {
        const std::vector<double>& of_rank = told[static_cast<std::size_t>(to)];
        if (of_rank.size() != peers_.size()) meeting_.refuse(topic, to, "it is not one time for each rank");
        samples[{from, to}].push_back(of_rank[static_cast<std::size_t>(from)]);
      }
    }
    std::map<std::pair<int, int>, double> result;
    for (const auto& [pair, times] : samples) result[pair] = median(times);
    return result;
  }

  Json measure(const comm::p2p::JobFacts& facts) {
    const auto tell = [&](const std::string& text) {
      if (rank_.is_main && output_.note) output_.note(text);
    };
    Pairs all, across;
    for (int from = 0; from < rank_.size; ++from) {
      for (int to = 0; to < rank_.size; ++to) {
        if (from != to) all.emplace_back(from, to);
      }
    }
    for (int low = 0; low < rank_.size / 2; ++low) {
      across.emplace_back(low, low + rank_.size / 2);
      across.emplace_back(low + rank_.size / 2, low);
    }
    tell(fmt::format("{} pairs, one after the other", all.size()));
    std::map<std::pair<int, int>, double> alone;
    for (const auto& pair : all) alone.merge(microseconds_of(fmt::format("alone/{}-{}", pair.first, pair.second), {pair}));
    tell("all pairs at once, and the bisection");
    const auto at_once = microseconds_of("all", all), bisection = microseconds_of("bisection", across);
    const std::vector<PairWay> ways = ways_of(facts);

    const auto rate = [&](const std::map<std::pair<int, int>, double>& of, const std::pair<int, int>& pair) {
      return gb_per_s(static_cast<double>(bytes_), of.at(pair));
    };
    const auto together = [&](const Pairs& pairs, const std::map<std::pair<int, int>, double>& taken) {
      double longest = 0, sum = 0;
      for (const auto& pair : pairs) longest = std::max(longest, taken.at(pair)), sum += rate(alone, pair);
      const double total = gb_per_s(static_cast<double>(bytes_) * static_cast<double>(pairs.size()), longest);
      return Json{{"pairs", pairs.size()}, {"gb_per_s", total}, {"of_alone", total / sum}};
    };
    Json json = bench_head("p2p concurrent", plan_, rank_);
    json["bytes"] = bytes_;
    json["rounds"] = request_.rounds;
    json["pairs"] = Json::array();
    for (std::size_t n = 0; n < all.size(); ++n) {
      Json pair{{"from", all[n].first}, {"to", all[n].second}, {"link", facts.pair(all[n].first, all[n].second).link()}};
      pair["transport"] = ways[n].transport;
      pair["alone_gb_per_s"] = rate(alone, all[n]);
      pair["at_once_gb_per_s"] = rate(at_once, all[n]);
      if (const auto& nominal = ways[n].nominal) {
        pair["nominal_gb_per_s"] = *nominal;
        pair["of_nominal"] = rate(alone, all[n]) / *nominal;
      }
      json["pairs"].push_back(std::move(pair));
    }
    json["all_pairs"] = together(all, at_once);
    json["bisection"] = together(across, bisection);
    return json;
  }

  // By pair, in their order.
  std::vector<PairWay> ways_of(const comm::p2p::JobFacts& facts) {
    std::vector<PairWay> own;
    for (int to = 0; to < rank_.size; ++to) {
      if (to == rank_.rank) continue;
      own.push_back({to_string(peer(to).out->report().transport), request_.nominal(facts.pair(rank_.rank, to))});
    }
    std::vector<PairWay> all;
    const std::vector<std::vector<PairWay>> told = meeting_.gather("ways", own);
    for (int rank = 0; rank < rank_.size; ++rank) {
      const std::vector<PairWay>& of_rank = told[static_cast<std::size_t>(rank)];
      if (of_rank.size() + 1 != peers_.size()) meeting_.refuse("ways", rank, "it is not one way to each rank");
      all.insert(all.end(), of_rank.begin(), of_rank.end());
    }
    return all;
  }

  const ConcurrentBenchmarkRequest& request_;
  const launch::LaunchPlan& plan_;
  launch::RankContext& rank_;
  const BenchOutput& output_;
  comm::Meeting meeting_;
  const comm::Meeting::Busy busy_;
  const std::size_t bytes_;
  DeviceMemory memory_;
  PatternTraffic traffic_;
  Pattern pattern_;
  Buffer source_;
  Links links_;
  std::vector<Peer> peers_;  // by rank; none of this one
};

}  // namespace

int benchmark_concurrent(const ConcurrentBenchmarkRequest& request, const BenchOutput& output) {
  const launch::LaunchPlan plan = plan_bench(request.ranks, request.argv);
  return run_bench(plan, request.argv, output,
                   [&](launch::RankContext& rank) { return Concurrent(request, plan, rank, output).run(); });
}

std::string concurrent_table(const Json& result) {
  std::string out =
      head_text(result) + fmt::format("; messages of {}, medians of {} rounds\n\n",
                                      format_size(result["bytes"].get<std::size_t>()), result["rounds"].get<int>());
  TextTable table({{"pair", Align::left},
                   {"link", Align::left},
                   {"transport", Align::left},
                   {"alone GB/s"},
                   {"at once GB/s"},
                   {"of nominal"}});
  table.measure({std::string(12, ' '), std::string(14, ' ')});
  std::string slow;
  for (const Json& pair : result["pairs"]) {
    const std::string name = fmt::format("{} -> {}", pair["from"].get<int>(), pair["to"].get<int>());
    const double alone = pair["alone_gb_per_s"].get<double>();
    const std::optional<double> part =
        pair.contains("of_nominal") ? std::optional(pair["of_nominal"].get<double>()) : std::nullopt;
    table.add({name, pair["link"].get<std::string>(), pair["transport"].get<std::string>(), fmt::format("{:.2f}", alone),
               fmt::format("{:.2f}", pair["at_once_gb_per_s"].get<double>()),
               part ? fmt::format("{:.0f} %", 100 * *part) : "-"});
    if (part && *part < least_of_nominal) slow += slow_text(name, alone, pair["nominal_gb_per_s"].get<double>()) + "\n";
  }
  out += table.text(80);
  for (const auto& [key, words] : {std::pair{"all_pairs", "all pairs at once"}, {"bisection", "bisection, both ways"}}) {
    const Json& total = result[key];
    out += fmt::format("{}: {:.2f} GB/s over {} pairs, {:.0f} % of the pairs alone\n", words, total["gb_per_s"].get<double>(),
                       total["pairs"].get<int>(), 100 * total["of_alone"].get<double>());
  }
  return out + slow;
}

}  // namespace plait::bench
