// Connections of somebody who has no business here.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/file.h"

namespace plait::comm::test {

// -1 if nobody listens there. `port` of 127.0.0.1.
inline FileDescriptor connect_to(int port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return FileDescriptor();
  return socket;
}

inline void send_text(const FileDescriptor& socket, const std::string& text) {
  static_cast<void>(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

// What a stranger may say: nothing; not plait's language; plait's, but what follows is wrong; what Gloo's own peers would say.
inline std::vector<std::string> things_strangers_say() {
  const std::string greeting("plait-1\0\1\0\0\0", 12);
  return {"",
          "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
          std::string(100'000, 'x'),
          greeting,
          greeting + std::string(32, 'c'),
          greeting + std::string(64, 'c'),
          greeting + std::string(1000, 'c'),
          std::string("\0\0\0\0\0\0\0\0", 8),
          std::string("\x30\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 16) + std::string(32, '\0')};
}

// What comes within `milliseconds`, or until the other end closes.
inline std::string heard_within(const FileDescriptor& socket, int milliseconds, std::size_t most = 1 << 20) {
  std::string heard;
  std::string piece(4096, '\0');
  pollfd event{socket.get(), POLLIN, 0};
  while (heard.size() < most && ::poll(&event, 1, milliseconds) == 1) {
    const ssize_t count = ::recv(socket.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (count <= 0) break;
    heard.append(piece.data(), static_cast<std::size_t>(count));
  }
  return heard;
}

// Whether the other end closes the connection within `milliseconds`.
inline bool is_dropped_within(const FileDescriptor& socket, int milliseconds) {
  std::string piece(4096, '\0');
  pollfd event{socket.get(), POLLIN, 0};
  while (::poll(&event, 1, milliseconds) == 1) {
    if (::recv(socket.get(), piece.data(), piece.size(), MSG_DONTWAIT) <= 0) return true;
  }
  return false;
}

}  // namespace plait::comm::test
