// Turns the results of `plait bench p2p` into a topology's measurements.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "topology/graph.h"

namespace plait::bench {

// For every pair in the result of benchmark_p2p() (p2p_benchmark.h): the best GB/s of any mailbox at the largest size and the
// best latency at the smallest; if no mailbox works, the communication library's figures and a note. Rank r must be GPU r of
// `host`, which holds if there is one rank for each GPU that the process sees. CommError for a result of any other form.
std::vector<topology::PairMeasurement> pair_measurements(const nlohmann::ordered_json& result, const topology::Graph& graph,
                                                         int host, std::vector<std::string>& notes);

// Measures all pairs of GPUs that this process sees, each by the transport that `comm.p2p: auto` would use for it, and adds the
// figures to `graph`, which was discovered on this machine. ConfigError for fewer than two GPUs. `note`: progress, for people.
void measure_pairs(topology::Graph& graph, const std::function<void(const std::string&)>& note);

}  // namespace plait::bench
