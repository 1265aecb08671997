// Measures one pair of ranks for `plait bench p2p`.
#pragma once

#include <nlohmann/json.hpp>

#include "bench/p2p_benchmark.h"
#include "bench/p2p_pair_end.h"

namespace plait::bench {

// The part of the result from "methods" on. Both ends call this and get the same.
nlohmann::ordered_json measure_pair(const P2pBenchmarkRequest& request, launch::RankContext& rank, const PairSpec& pair,
                                    const std::vector<std::size_t>& sizes);

// Bytes of device memory that an end needs for messages of up to `largest` bytes with this many methods.
std::size_t pair_memory(std::size_t largest, std::size_t methods, DeviceKind kind);

}  // namespace plait::bench
