#include "bench/p2p_pair.h"

#include <algorithm>

#include "bench/p2p_products.h"
#include "bench/sizes.h"
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

}  // namespace

std::size_t pair_memory(std::size_t largest, std::size_t methods, DeviceKind kind) {
  // Source and two targets here, one more for the trial of a link; two slots of a mailbox for each method, in either direction,
  // and eight of 64 KB and of 1 MB.
  const std::size_t products = kind == DeviceKind::cuda ? gpu_products : cpu_products;
  const std::size_t short_slots = largest > short_message ? 2 * 2 * 8 * short_message : 0;
  return 4 * largest + methods * (4 * std::min(largest, largest_slot) + short_slots) + products;
}

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

}  // namespace plait::bench
