// comm.p2p_pairs as users write it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace plait {

// How messages between two devices travel, in both directions.
struct PairTransport {
  int a = 0, b = 0;       // numbers of GPUs (ranks on CPUs), a < b
  std::string transport;  // as comm.p2p, but not auto
};

// "0-1=host"; nullopt for anything else.
std::optional<PairTransport> pair_transport(std::string_view text);

}  // namespace plait
