// The nominal rate between two devices, for comparison with measurements.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "comm/p2p/facts.h"

namespace plait::bench {

// GB/s in one direction, from the topology of this host (topology/nominal.h), without any measurement. nullopt for CPUs, for
// ranks on two hosts, and if this host's discovery does not find both GPUs. For an end of the pair that is on this host.
std::optional<double> nominal_rate(const comm::p2p::PairFacts& facts);

using NominalRate = std::function<std::optional<double>(const comm::p2p::PairFacts&)>;

// Below this part of the nominal rate something is wrong with a pair.
inline constexpr double least_of_nominal = 0.7;
// "warning: 0 -> 1: 12.3 GB/s are 34 % of the 36.0 that its link should carry: ..."; `pair`: "0 -> 1".
std::string slow_text(const std::string& pair, double gb_per_s, double nominal);

}  // namespace plait::bench
