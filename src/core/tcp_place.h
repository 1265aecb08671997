// launch.rendezvous as the text of a place in a network.
#pragma once

#include <optional>
#include <string>

namespace plait {

// What the text leaves open is the outside launcher's to say.
struct TcpPlace {
  std::string host;  // a name or an address; "": MASTER_ADDR
  int port = 0;      // 0: MASTER_PORT
  friend bool operator==(const TcpPlace&, const TcpPlace&) = default;
};

// Of "tcp", "tcp://:29511", "tcp://node-1:29511" and "tcp://[fd00::1]:29511". Nothing for any other text.
std::optional<TcpPlace> tcp_place(const std::string& text);

}  // namespace plait
