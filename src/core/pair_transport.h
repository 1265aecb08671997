// comm.p2p_pairs as users write it.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace plait {

// What comm.p2p and comm.p2p_pairs may say, beside auto.
inline constexpr std::array<const char*, 6> transport_names{"direct", "ipc", "vmm", "relay", "host", "nccl"};

// How messages between two devices travel, in both directions.
struct PairTransport {
  int a = 0, b = 0;       // numbers of GPUs (ranks on CPUs), a < b
  std::string transport;  // as comm.p2p, but not auto
};

// "0-1=host"; nullopt for anything else.
std::optional<PairTransport> pair_transport(std::string_view text);

}  // namespace plait
