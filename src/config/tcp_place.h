// Parses launch.rendezvous as a place in a network.
#pragma once

#include <optional>
#include <string>

namespace plait {

// The outside launcher fills in what the text leaves open.
struct TcpPlace {
  std::string host;  // a name or an address; "": MASTER_ADDR
  int port = 0;      // 0: MASTER_PORT
  friend bool operator==(const TcpPlace&, const TcpPlace&) = default;
};

// Accepts "tcp", "tcp://:29511", "tcp://node-1:29511" and "tcp://[fd00::1]:29511". nullopt for any other text.
std::optional<TcpPlace> tcp_place(const std::string& text);

}  // namespace plait
