#include "bench/pair_measurements.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <map>

#include "bench/p2p_benchmark.h"
#include "core/device.h"
#include "core/error.h"

namespace plait::bench {
namespace {

using Json = nlohmann::ordered_json;
using topology::Graph;
using topology::PairMeasurement;

struct Best {
  double gb_per_s = 0, latency_us = 0;
};

void take(const Json& method, Best& best) {
  const Json& results = method.at("results");
  const auto by_bytes = [](const Json& x, const Json& y) { return x.at("bytes").get<double>() < y.at("bytes").get<double>(); };
  const auto [smallest, largest] = std::minmax_element(results.begin(), results.end(), by_bytes);
  best.gb_per_s = std::max(best.gb_per_s, largest->at("gb_per_s").get<double>());
  const double latency = smallest->at("latency_microseconds").get<double>();
  best.latency_us = best.latency_us > 0 ? std::min(best.latency_us, latency) : latency;
}

}  // namespace

std::vector<PairMeasurement> pair_measurements(const Json& result, const Graph& graph, int host,
                                               std::vector<std::string>& notes) {
  std::map<int, int> gpus;  // by number
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const topology::Node& node = graph.nodes[i];
    if (node.kind == topology::NodeKind::gpu && node.host == host) gpus[node.index] = static_cast<int>(i);
  }
  std::vector<PairMeasurement> pairs;
  try {
    for (const Json& pair : result.at("pairs")) {
      const int from = pair.at("from").get<int>(), to = pair.at("to").get<int>();
      if (!gpus.contains(from) || !gpus.contains(to))
        throw CommError(fmt::format("bench p2p: no GPU for ranks {} and {}", from, to));
      Best mailbox, library;
      for (const Json& method : pair.at("methods")) {
        if (method.at("available").get<bool>() && !method.at("results").empty())
          take(method, method.at("transport") == "nccl" ? library : mailbox);
      }
      const Best& best = mailbox.gb_per_s > 0 ? mailbox : library;
      if (best.gb_per_s <= 0) {
        notes.push_back(fmt::format("GPU{} -> GPU{}: nothing could be measured", from, to));
        continue;
      }
      if (&best == &library)
        notes.push_back(fmt::format("GPU{} -> GPU{}: no mailbox works here; the figures are NCCL's", from, to));
      pairs.push_back({gpus[from], gpus[to], best.gb_per_s, best.latency_us});
    }
  } catch (const Json::exception& error) {
    throw CommError(std::string("bench p2p: unexpected result: ") + error.what());
  }
  return pairs;
}

void measure_pairs(Graph& graph, const std::function<void(const std::string&)>& note) {
  std::string why;
  const int count = cuda_device_count(&why);
  if (count < 2) {
    throw ConfigError({{"--measure", "",
                        count == 0 ? "needs two GPUs that this process can see, but it sees none: " + why
                                   : "needs two GPUs that this process can see, but it sees one",
                        "", 0}});
  }
  P2pBenchmarkRequest request;
  request.ranks.device = "cuda";
  request.sizes.sizes = {"4K", "256M"};
  request.filter.first_transport = true;
  request.rounds = 3;
  request.products = false;
  std::vector<std::string> notes;
  benchmark_p2p(request, {.result =
                              [&](const Json& result) {
                                for (const auto& text : result.at("notes")) notes.push_back(text.get<std::string>());
                                graph.pairs = pair_measurements(result, graph, 0, notes);
                              },
                          .note = note});
  for (const std::string& text : notes) note(text);
}

}  // namespace plait::bench
