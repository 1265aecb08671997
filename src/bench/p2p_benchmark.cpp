#include "bench/p2p_benchmark.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <charconv>

#include "bench/link_speed.h"
#include "bench/p2p_pair_end.h"
#include "bench/p2p_products.h"
#include "bench/sizes.h"
#include "comm/communicator.h"
#include "core/error.h"
#include "core/statistics.h"

namespace plait::bench {
namespace {

using Json = nlohmann::ordered_json;

// Above this size, comparing on the host costs more than the messages; such sizes are compared in the last round.
constexpr std::size_t checked_always = std::size_t{16} << 20;
constexpr std::size_t short_message = std::size_t{1} << 20;
constexpr std::size_t largest_slot = std::size_t{256} << 20;                                      // of a mailbox
constexpr std::size_t gpu_products = std::size_t{1} << 30, cpu_products = std::size_t{16} << 20;  // memory for them

// Microseconds of every round of one method at one size, as one end measured them; 0 for figures of the other end.
struct Samples {
  std::vector<double> one_way, both_ways, latency;
};

void declare(auto& field, Of<Samples> auto& samples) {
  constexpr record::Many<record::AnyValue> any_rounds = record::at_most(1 << 24);
  field("one_way", samples.one_way, any_rounds);
  field("both_ways", samples.both_ways, any_rounds);
  field("latency", samples.latency, any_rounds);
}

// By method, then by size.
using Table = std::vector<std::vector<Samples>>;

// Figures unknown to an end are 0 there; both directions take as long as the longer one.
void merge(std::vector<double>& own, const std::vector<double>& other) {
  if (own.size() != other.size()) throw CommError("bench p2p: the two ends of a pair measured different things");
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = std::max(own[i], other[i]);
}

void swap_samples(PairEnd& end, Table& table) {
  const Table other = end.swap("samples", table);
  const bool alike = std::equal(table.begin(), table.end(), other.begin(), other.end(),
                                [](const auto& own, const auto& theirs) { return own.size() == theirs.size(); });
  if (!alike) end.refuse("samples", "it has other methods or sizes");
  for (std::size_t m = 0; m < table.size(); ++m) {
    for (std::size_t s = 0; s < table[m].size(); ++s) {
      merge(table[m][s].one_way, other.at(m).at(s).one_way);
      merge(table[m][s].both_ways, other.at(m).at(s).both_ways);
      merge(table[m][s].latency, other.at(m).at(s).latency);
    }
  }
}

Table measure(PairEnd& end, const std::vector<std::size_t>& sizes, int rounds) {
  const std::vector<PairMethod>& methods = end.methods();
  const std::size_t budget = end.device().is_cuda() ? gpu_budget : cpu_budget;
  Table table(methods.size(), std::vector<Samples>(sizes.size()));
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    PairEnd::Loop loop{.bytes = sizes[s], .messages = messages_for(sizes[s], budget)};
    for (int round = 0; round < rounds; ++round) {
      loop.check = sizes[s] <= checked_always || round + 1 == rounds;
      // Methods take turns, and each round begins with a different one, so that drift affects all of them.
      for (std::size_t k = 0; k < methods.size(); ++k) {
        const std::size_t m = (k + static_cast<std::size_t>(round)) % methods.size();
        if (!methods[m].works()) continue;
        Samples& samples = table[m][s];
        samples.one_way.push_back(end.synchronize_one_way(methods[m], loop));
        samples.both_ways.push_back(end.synchronize_both_ways(methods[m], loop));
        samples.latency.push_back(end.synchronize_latency(methods[m], loop));
      }
    }
  }
  return table;
}

Json result(std::size_t bytes, const Samples& samples, const Samples* reference) {
  const double one_way = median(samples.one_way), size = static_cast<double>(bytes);
  Json json;
  json["bytes"] = bytes;
  json["microseconds"] = one_way;
  json["microseconds_min"] = *std::min_element(samples.one_way.begin(), samples.one_way.end());
  json["microseconds_max"] = *std::max_element(samples.one_way.begin(), samples.one_way.end());
  json["gb_per_s"] = gb_per_s(size, one_way);
  json["both_ways_gb_per_s"] = gb_per_s(2 * size, median(samples.both_ways));
  json["latency_microseconds"] = median(samples.latency);
  if (reference) json["vs_nccl"] = median(reference->one_way) / one_way;
  return json;
}

Json report(const std::vector<PairMethod>& methods, const std::vector<std::size_t>& sizes, const Table& table) {
  const auto library = std::find_if(methods.begin(), methods.end(), [](const PairMethod& method) {
    return method.method.transport == Transport::nccl && method.works();
  });
  Json list = Json::array();
  for (std::size_t m = 0; m < methods.size(); ++m) {
    Json json;
    json["transport"] = methods[m].method.transport_text();
    json["mover"] = methods[m].method.mover_text();
    json["available"] = methods[m].works();
    if (!methods[m].works()) json["reason"] = methods[m].obstacle;
    if (methods[m].works() && !methods[m].links.back().ends.out()->report().bridge.empty())
      json["bridge"] = methods[m].links.back().ends.out()->report().bridge;
    json["results"] = Json::array();
    for (std::size_t s = 0; methods[m].works() && s < sizes.size(); ++s) {
      const Samples* reference =
          library == methods.end() ? nullptr : &table[static_cast<std::size_t>(library - methods.begin())][s];
      json["results"].push_back(result(sizes[s], table[m][s], reference));
    }
    list.push_back(std::move(json));
  }
  return list;
}

// Bytes of device memory that an end needs for messages of up to `largest` bytes with this many methods.
std::size_t pair_memory(std::size_t largest, std::size_t methods, DeviceKind kind) {
  // Source and two targets here, one more for the trial of a link; two slots of a mailbox for each method, in either direction,
  // and eight of 64 KB and of 1 MB.
  const std::size_t products = kind == DeviceKind::cuda ? gpu_products : cpu_products;
  const std::size_t short_slots = largest > short_message ? 2 * 2 * 8 * short_message : 0;
  return 4 * largest + methods * (4 * std::min(largest, largest_slot) + short_slots) + products;
}

// The part of the result from "methods" on. Both ends call this and get the same.
Json measure_pair(const P2pBenchmarkRequest& request, launch::RankContext& rank, const PairSpec& pair,
                  const std::vector<std::size_t>& sizes) {
  PairEnd end(rank, pair, methods_of(pair.facts, request.filter), request.make_link);
  return end.run([&] {
    Table table = measure(end, sizes, request.rounds);
    swap_samples(end, table);
    Json json;
    json["methods"] = report(end.methods(), sizes, table);
    if (request.products)
      json["products"] =
          measure_products(end, request.product_dim, request.product_rounds > 0 ? request.product_rounds : request.rounds);
    return json;
  });
}

constexpr std::size_t plain_copy_bytes = std::size_t{256} << 20;

class P2pBenchmark {
 public:
  P2pBenchmark(const P2pBenchmarkRequest& request, const launch::LaunchPlan& plan, launch::RankContext& rank,
               const BenchOutput& output)
      : request_(request),
        plan_(plan),
        rank_(rank),
        output_(output),
        meeting_(rank.meeting("p2p", request.ranks.timeout)),
        busy_(meeting_.busy()),
        pairs_(request.pairs),
        gpus_(rank.device.is_cuda()) {
    for (int from = 0; request.pairs.empty() && from < rank.size; ++from) {
      for (int to = 0; to < rank.size; ++to) {
        if (from != to) pairs_.emplace_back(from, to);
      }
    }
  }

  // Returns the result on rank 0, null on the others.
  Json run() {
    std::vector<Json> plain_copies = measure_plain_copies();
    const comm::p2p::JobFacts facts(rank_.device, PeerAccessUse::automatic, meeting_);
    const std::vector<std::size_t> sizes = bounded_sizes(facts);
    Json json = bench_head("p2p", plan_, rank_);
    json["rounds"] = request_.rounds;
    json["sizes"] = sizes;
    json["notes"] = notes_;
    json["pairs"] = Json::array();
    for (std::size_t p = 0; p < pairs_.size(); ++p) {
      const auto [from, to] = pairs_[p];
      tell(fmt::format("pair {} of {}: {} -> {}", p + 1, pairs_.size(), from, to));
      Json pair = about(facts.pair(from, to), from, to, plain_copies.empty() ? Json() : plain_copies[p]);
      const Json measured = take_turn(p, facts, sizes);
      for (const auto& [key, value] : measured.items()) pair[key] = value;
      warn_if_off(pair);
      compare_with_nominal(pair);
      if (request_.before_after) pair["before_after"] = before_after(pair);
      json["pairs"].push_back(std::move(pair));
    }
    return json;
  }

 private:
  void tell(const std::string& text) const {
    if (rank_.is_main && output_.note) output_.note(text);
  }
  void note(const std::string& text) {
    notes_.push_back(text);
    tell(text);
  }

  // Runs first, while nothing in this process has enabled peer access; and on one rank, since all are in that process.
  std::vector<Json> measure_plain_copies() {
    std::vector<Json> copies;
    if (!gpus_ || plan_.mode != LaunchMode::threads) return copies;
    if (rank_.is_main) {
      for (const auto& [from, to] : pairs_) {
        const auto device = [&](int rank) { return plan_.devices[static_cast<std::size_t>(rank)]; };
        const PlainCopy copy = synchronize_plain_copy(device(from), device(to), plain_copy_bytes);
        copies.push_back({{"bytes", copy.bytes}, {"microseconds", copy.microseconds}, {"gb_per_s", copy.gb_per_s}});
      }
      make_current(rank_.device);
    }
    meeting_.meet("plain copies");
    return copies;
  }

  // Sizes for which every rank has the memory.
  std::vector<std::size_t> bounded_sizes(const comm::p2p::JobFacts& facts) {
    std::vector<std::size_t> sizes = message_sizes(request_.sizes, gpus_);
    const std::size_t least = least_free_bytes(rank_, meeting_);
    const auto available = static_cast<std::size_t>(usable_memory * static_cast<double>(least));
    std::size_t methods = 0;
    for (const auto& [from, to] : pairs_) methods = std::max(methods, methods_of(facts.pair(from, to), request_.filter).size());
    if (methods == 0) throw ConfigError("bench p2p: --transports and --movers leave nothing to measure");
    std::size_t dropped = 0;
    while (!sizes.empty() && pair_memory(sizes.back(), methods, rank_.device.kind) > available) {
      sizes.pop_back();
      ++dropped;
    }
    if (sizes.empty()) {
      throw DeviceError(fmt::format(
          "bench p2p: {} MB of free memory is not enough even for the smallest message; free some, or ask for smaller ones",
          available >> 20));
    }
    if (dropped > 0) {
      note(fmt::format("skipping messages above {}: each rank has {} MB of free memory", format_size(sizes.back()),
                       least >> 20));
    }
    return sizes;
  }

  static Json about(const comm::p2p::PairFacts& facts, int from, int to, Json plain_copy) {
    Json json;
    json["from"] = from;
    json["to"] = to;
    json["link"] = facts.link();
    json["nvlinks"] = facts.nvlinks();
    json["peer_access"] = facts.from_sender.peer_access && facts.from_receiver.peer_access;
    if (!plain_copy.is_null()) json["plain_copy"] = std::move(plain_copy);
    return json;
  }

  // Between GPUs without access to each other's memory, for any reason, messages are much slower: the warning names them.
  void warn_if_off(Json& pair) {
    if (!gpus_ || !rank_.is_main) return;
    std::string reason;
    for (const Json& method : pair["methods"]) {
      const std::string transport = method["transport"].get<std::string>();
      if (transport == "host" || transport == "nccl") continue;
      if (method["available"].get<bool>()) return;
      if (reason.empty()) reason = transport + ": " + method["reason"].get<std::string>();
    }
    std::string text = fmt::format("warning: {} -> {}: peer access is not used ({})", pair["from"].get<int>(),
                                   pair["to"].get<int>(), reason.empty() ? "no transport that needs it was asked for" : reason);
    if (pair.contains("plain_copy")) {
      text += fmt::format("; a plain copy goes through the host at {:.1f} GB/s", pair["plain_copy"]["gb_per_s"].get<double>());
    }
    pair["warning"] = text;
    tell(text);
  }

  static Json json_of(const PcieSpeed& speed) {
    if (!speed.known()) return nullptr;
    Json json{{"gt_per_s", speed.gt_per_s},
              {"width", speed.width},
              {"most_gt_per_s", speed.most_gt_per_s},
              {"most_width", speed.most_width}};
    if (speed.is_less_than_it_could())
      json["trained_down"] = "its PCIe link ran at " + speed.text() + " while messages were on their way";
    return json;
  }

  // Adds the nominal rate to every result, and a warning if the best is far below it.
  void compare_with_nominal(Json& pair) {
    if (!pair.contains("nominal_gb_per_s")) return;
    const double nominal = pair["nominal_gb_per_s"].get<double>();
    double best = 0;
    for (Json& method : pair["methods"]) {
      for (Json& result : method["results"]) {
        const double rate = result["gb_per_s"].get<double>();
        result["of_nominal"] = rate / nominal;
        best = std::max(best, rate);
      }
    }
    if (best >= least_of_nominal * nominal) return;
    pair["slow"] = slow_text(fmt::format("{} -> {}", pair["from"].get<int>(), pair["to"].get<int>()), best, nominal);
    tell(pair["slow"].get<std::string>());
  }

  // Among the methods with peer access the one of least latency and the fastest may have different movers.
  static Json before_after(const Json& pair) {
    Json sides = Json::object();
    for (const Json& method : pair["methods"]) {
      const auto transport = named<Transport>(method["transport"].get<std::string>());
      if (!method["available"].get<bool>() || method["results"].empty() || transport == Transport::nccl) continue;
      Json& side = sides[needs_peer_access(*transport) ? "with" : "without"];
      const double latency = method["results"].front()["latency_microseconds"].get<double>();
      const double rate = method["results"].back()["gb_per_s"].get<double>();
      if (side.is_null()) side = {{"transport", method["transport"]}, {"latency_microseconds", latency}, {"gb_per_s", rate}};
      side["latency_microseconds"] = std::min(side["latency_microseconds"].get<double>(), latency);
      side["gb_per_s"] = std::max(side["gb_per_s"].get<double>(), rate);
    }
    if (sides.contains("with") && sides.contains("without")) {
      const auto ratio = [&](const char* above, const char* below, const char* key) {
        return sides[above][key].get<double>() / sides[below][key].get<double>();
      };
      sides["latency_ratio"] = ratio("without", "with", "latency_microseconds");
      sides["rate_ratio"] = ratio("with", "without", "gb_per_s");
    }
    return sides;
  }

  // Measures if this rank is an end; in any case waits until the pair is done and has freed its memory.
  Json take_turn(std::size_t p, const comm::p2p::JobFacts& facts, const std::vector<std::size_t>& sizes) {
    const auto [from, to] = pairs_[p];
    const std::string name = "pair-" + std::to_string(p);
    const bool is_end = rank_.rank == from || rank_.rank == to;
    if (is_end) {
      const PairSpec pair{.name = "p2p/" + name,
                          .from = from,
                          .to = to,
                          .facts = facts.pair(from, to),
                          .largest_bytes = sizes.back(),
                          .timeout = request_.ranks.timeout,
                          .host_interface = request_.ranks.interface};
      PcieSpeedSampler pcie(facts.end(rank_.rank).bus_id);
      Json own = measure_pair(request_, rank_, pair, sizes);
      own["pcie"] = json_of(pcie.fastest());
      if (rank_.rank == from) {
        if (const auto nominal = request_.nominal(pair.facts)) own["nominal_gb_per_s"] = *nominal;
      }
      meeting_.say(name, own);
    }
    Json result = meeting_.hear<Json>(name, from), other = meeting_.hear<Json>(name, to);
    for (const auto& [rank, json] : {std::pair(from, &result), std::pair(to, &other)}) {
      if (!json->is_object() || !json->contains("methods") || !json->contains("pcie"))
        meeting_.refuse(name, rank, "it is not the measurement of a pair");
    }
    Json ends;
    if (!result["pcie"].is_null()) ends["from"] = result["pcie"];
    if (!other["pcie"].is_null()) ends["to"] = other["pcie"];
    result.erase("pcie");
    if (!ends.is_null()) result["pcie"] = std::move(ends);
    return result;
  }

  const P2pBenchmarkRequest& request_;
  const launch::LaunchPlan& plan_;
  launch::RankContext& rank_;
  const BenchOutput& output_;
  comm::Meeting meeting_;           // of all ranks,
  const comm::Meeting::Busy busy_;  // measuring has no time limit
  std::vector<std::pair<int, int>> pairs_;
  const bool gpus_;
  std::vector<std::string> notes_;
};

}  // namespace

std::vector<std::pair<int, int>> parse_pairs(const std::vector<std::string>& texts) {
  std::vector<std::pair<int, int>> pairs;
  for (const std::string& text : texts) {
    int from = -1, to = -1;
    const char* end = text.data() + text.size();
    const auto first = std::from_chars(text.data(), end, from);
    const bool dash = first.ec == std::errc() && first.ptr != end && *first.ptr == '-';
    const auto second = dash ? std::from_chars(first.ptr + 1, end, to) : first;
    if (!dash || second.ec != std::errc() || second.ptr != end || from < 0 || to < 0 || from == to) {
      throw ConfigError({{"--pairs", text, "must be two different ranks, from and to, such as 0-1", "", 0}});
    }
    pairs.emplace_back(from, to);
  }
  return pairs;
}

int benchmark_p2p(const P2pBenchmarkRequest& asked, const BenchOutput& output) {
  check(asked.filter);
  const launch::LaunchPlan plan = plan_bench(asked.ranks, asked.argv);
  P2pBenchmarkRequest request = asked;
  if (request.before_after) {
    request.products = false;
    request.filter.with_and_without = true;
    const bool default_sizes = request.sizes.min.empty() && request.sizes.max.empty() && request.sizes.sizes.empty();
    if (default_sizes) request.sizes.sizes = {"4K", plan.devices.front().is_cuda() ? "256M" : "16M"};
  }
  static_cast<void>(message_sizes(request.sizes, plan.devices.front().is_cuda()));  // throws before anything starts
  for (const auto& [from, to] : request.pairs) {
    if (std::max(from, to) >= plan.ranks) {
      throw ConfigError(
          {{"--pairs", fmt::format("{}-{}", from, to), fmt::format("must name ranks below {}", plan.ranks), "", 0}});
    }
  }
  return run_bench(plan, request.argv, output,
                   [&](launch::RankContext& rank) { return P2pBenchmark(request, plan, rank, output).run(); });
}

}  // namespace plait::bench
