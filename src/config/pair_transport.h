// Parses comm.p2p_pairs.
#pragma once

#include <optional>
#include <string_view>

#include "core/choices.h"

namespace plait {

// The transport of messages between two devices, in both directions.
struct PairTransport {
  int a = 0, b = 0;  // numbers of GPUs (ranks on CPUs), a < b
  Transport transport = Transport::nccl;
};

// "0-1=host"; nullopt for anything else.
std::optional<PairTransport> pair_transport(std::string_view text);

}  // namespace plait
