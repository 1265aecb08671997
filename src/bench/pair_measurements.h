// What `plait bench p2p` measured, as a topology holds it.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "topology/graph.h"

namespace plait::bench {

// For every pair of the result of benchmark_p2p() (p2p_benchmark.h) the best that a mailbox reached: GB/s at the largest size,
// latency at the smallest; the communication library's, and a note, where no mailbox works. Rank r is the GPU of number r on
// `host`, which is the case where ranks are one for each GPU that the process sees. CommError for a result that holds anything
// else.
std::vector<topology::PairMeasurement> pair_measurements(const nlohmann::ordered_json& result, const topology::Graph& graph,
                                                         int host, std::vector<std::string>& notes);

// Measures all pairs of GPUs that this process sees, each by the transport that `comm.p2p: auto` takes for it, and puts them
// into `graph`, a discovered one. ConfigError where there are fewer than two GPUs. `note`: progress, for people.
void measure_pairs(topology::Graph& graph, const std::function<void(const std::string&)>& note);

}  // namespace plait::bench
