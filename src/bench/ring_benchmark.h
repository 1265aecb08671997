// plait bench ring: every rank sends to the next one at the same time, thousands of messages of all sizes by each transport,
// and every byte that arrives is compared.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/bench_ranks.h"
#include "bench/link_methods.h"

namespace plait::bench {

struct RingBenchmarkRequest {
  BenchRanks ranks;
  MethodFilter filter;
  std::int64_t messages = 2000;  // for each hop and method
  std::size_t min_bytes = 1;
  std::size_t max_bytes = std::size_t{1} << 20;
  std::uint64_t seed = 1;  // for sizes and contents
  std::vector<std::string> argv;
  comm::p2p::LinkMaker make_link = comm::p2p::make_link;
};

// {"benchmark": "ring", "mode", "ranks", "device", "backend", "messages", "min_bytes", "max_bytes", "seed", "methods":
// [{"transport",
//  "mover", "available", "reason", "hops": [{"from", "to", "link", "messages", "checked_bytes", "microseconds", "gb_per_s"}]}]}
// microseconds: per message, over a batch without its first message. A method runs only if it is possible on every hop. Returns
// the exit status. CommError naming message, byte and hop when a byte is wrong.
int benchmark_ring(const RingBenchmarkRequest& request, const BenchOutput& output);

// The size of a message. Sizes are spread evenly over powers of two, so that small ones are as frequent as large ones.
std::size_t ring_message_bytes(const RingBenchmarkRequest& request, int hop, std::int64_t message);

std::string ring_table(const nlohmann::ordered_json& result, int width);

}  // namespace plait::bench
