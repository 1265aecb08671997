// What the way between two devices should carry, beside what was measured.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "comm/p2p/pair_facts.h"

namespace plait::bench {

// GB/s in one direction, as the topology of this host has it (topology/nominal.h), without anything measured. Nothing for CPUs,
// for ranks on two hosts, and where this host's discovery does not find both GPUs. For an end of the pair that is on this host.
std::optional<double> nominal_rate(const comm::p2p::PairFacts& facts);

using NominalRate = std::function<std::optional<double>(const comm::p2p::PairFacts&)>;

// Below this part of the nominal rate a pair has something wrong with it.
inline constexpr double least_of_nominal = 0.7;
// "warning: 0 -> 1: 12.3 GB/s are 34 % of the 36.0 that its link should carry: ..."; `pair`: "0 -> 1".
std::string slow_text(const std::string& pair, double gb_per_s, double nominal);

}  // namespace plait::bench
