// plait bench p2p: measures messages between each pair of devices by every transport and mover that works on the machine, and
// by the communication library's send and receive in the same run.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench_ranks.h"
#include "bench/link_methods.h"
#include "bench/link_speed.h"
#include "bench/sizes.h"

namespace plait::bench {

struct P2pBenchmarkRequest {
  BenchRanks ranks;
  std::vector<std::pair<int, int>> pairs;  // (from, to); empty: all ordered pairs
  SizeOptions sizes;
  MethodFilter filter;
  int rounds = 5;                // every figure is the median over these; in each round every method takes a turn
  bool products = true;          // also measure matrix products during messages
  std::int64_t product_dim = 0;  // 0: 8192 on GPUs, 256 on CPUs
  int product_rounds = 0;        // of products during messages; 0: `rounds`
  // Only the benefit of peer access: a small message's latency and a large one's rate, by the best mailbox with peer access and
  // by host memory. Unless `sizes` says otherwise, 4 KB and 256 MB (CPUs: 16 MB); no products.
  bool before_after = false;
  std::vector<std::string> argv;
  NominalRate nominal = nominal_rate;
  comm::p2p::LinkMaker make_link = comm::p2p::make_link;
};

// "0-1", "0-1,1-0". ConfigError for anything else, and for a rank paired with itself.
std::vector<std::pair<int, int>> parse_pairs(const std::vector<std::string>& texts);

// {"benchmark": "p2p", "mode", "ranks", "device", "backend", "rounds", "sizes": [bytes], "notes": [text], "pairs": [
//   {"from", "to", "link", "nvlinks", "peer_access", "warning": text, if there is reason to warn,
//    "nominal_gb_per_s", if it is known; "slow": text, if no method reaches 70 % of that,
//    "pcie": {"from", "to"}, for GPUs that report it: {"gt_per_s", "width", "most_gt_per_s", "most_width"}, the fastest
//            during the messages, and "trained_down": text, if that is less than the device could,
//    "before_after": {"without", "with": {"transport", "latency_microseconds", "gb_per_s"}, each if there is one,
//    "latency_ratio",
//            "rate_ratio": of without to with, and of with to without}, with `before_after` only,
//    "plain_copy": {"bytes", "microseconds", "gb_per_s"} between GPUs of one process,
//    "methods": [{"transport", "mover", "available", "reason", "bridge",
//      "results": [{"bytes", "microseconds", "microseconds_min", "microseconds_max", "gb_per_s", "both_ways_gb_per_s",
//                   "latency_microseconds", "vs_nccl", "of_nominal"}]}],
//    "products": {"dim", "dtype", "products", "rounds", "beside": [{"transport", "mover", "message_bytes", "messages",
//    "messages_per_product",
//                 "equal_load", "from_tflops", "from_slowdown", "from_slowdown_min", "from_slowdown_max", the same with "to",
//                 "alone_tflops": {"from", "to"}, "noise": {"from", "to"}, "message_gb_per_s", "arrived", "most_gb_per_s"}]}}]}
//   microseconds        per message, back to back, one way
//   both_ways_gb_per_s  the sum of the two directions
//   latency             half of a round trip
//   slowdowns           fractions of the rate alone, medians over the rounds
//   alone_tflops        the rate of the runs alone that slowdowns are relative to
//   noise               the result of the same procedure between runs alone
//   equal_load          true if this method sent the common number of messages, so that it can be compared
//   arrived             the fraction of messages that arrived while products ran; message_gb_per_s is their rate
//   most_gb_per_s       the rate when the method was offered as many messages as it can move
// Returns the exit status. CommError when a message arrives wrong or not at all.
int benchmark_p2p(const P2pBenchmarkRequest& request, const BenchOutput& output);

// The result for people: a row per method and size for each pair, then the products during messages; `brief`: a row per method,
// with its best rates. For lines of `width` columns.
std::string p2p_table(const nlohmann::ordered_json& result, bool brief, int width);
// For a result with "before_after": a line for each pair, at most 80 columns; warnings are folded.
std::string before_after_table(const nlohmann::ordered_json& result, int width);

}  // namespace plait::bench
