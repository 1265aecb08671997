#include "comm/tcp/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "core/error.h"
#include "core/parse_number.h"

namespace plait::comm {
namespace {

constexpr int longest_queue = 1024;  // of connections not yet taken; the kernel's limit may be lower

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

std::string numeric(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> text{};
  const int status =
      ::getnameinfo(address, length, text.data(), static_cast<socklen_t>(text.size()), nullptr, 0, NI_NUMERICHOST);
  if (status != 0) throw CommError(std::string("cannot write a network address down: ") + ::gai_strerror(status));
  return text.data();
}

std::vector<SocketAddress> resolve(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (const int status = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); status != 0) {
    throw CommError("'" + host + "' has no network address: " + ::gai_strerror(status));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = found; one; one = one->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.length = one->ai_addrlen;
  }
  return addresses;
}

SocketAddress numeric_address(const std::string& address, int port) {
  return resolve(address, port, AI_NUMERICHOST | AI_NUMERICSERV).front();
}

FileDescriptor make_socket(int family) {
  FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) throw CommError("cannot make a TCP socket: " + errno_text());
  return socket;
}

std::span<const std::byte> bytes_of(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 1));
  }
  return std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, 1));
}

struct LocalAddress {
  std::string interface, address;
  int family = 0;
  std::vector<std::byte> bytes;
  bool link_local = false;  // IPv6: means nothing without its interface
};

std::vector<LocalAddress> local_addresses() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) throw CommError("cannot list the network interfaces: " + errno_text());
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(found, &::freeifaddrs);
  std::vector<LocalAddress> all;
  for (const ifaddrs* one = found; one; one = one->ifa_next) {
    if (!one->ifa_addr || !(one->ifa_flags & IFF_UP)) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const auto bytes = bytes_of(one->ifa_addr);
    const bool link_local =
        family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr);
    all.push_back({one->ifa_name, numeric(one->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)),
                   family, std::vector<std::byte>(bytes.begin(), bytes.end()), link_local});
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.family < b.family; });  // IPv4 first
  return all;
}

struct Subnet {
  int family = 0;
  std::vector<std::byte> bytes;
  std::size_t bits = 0;

  bool contains(const LocalAddress& local) const {
    if (local.family != family) return false;
    for (std::size_t bit = 0; bit < bits; ++bit) {
      const auto mask = std::byte{0x80} >> (bit % 8);
      if (((local.bytes[bit / 8] ^ bytes[bit / 8]) & mask) != std::byte{0}) return false;
    }
    return true;
  }
};

// nullopt if `text` is not of the form ADDRESS/BITS.
std::optional<Subnet> subnet_from(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const auto bits = whole_number<std::size_t>(std::string_view(text).substr(slash + 1));
  if (!bits) return std::nullopt;
  Subnet subnet;
  subnet.bits = *bits;
  try {
    const SocketAddress address = numeric_address(text.substr(0, slash), 0);
    const auto bytes = bytes_of(address.get());
    subnet.family = address.family();
    subnet.bytes.assign(bytes.begin(), bytes.end());
  } catch (const CommError&) {
    return std::nullopt;
  }
  return subnet.bits <= 8 * subnet.bytes.size() ? std::optional(subnet) : std::nullopt;
}

}  // namespace

std::vector<std::string> addresses_of(const std::string& host) {
  std::vector<std::string> addresses;
  for (const SocketAddress& address : resolve(host, 0, 0)) addresses.push_back(numeric(address.get(), address.length));
  return addresses;
}

bool is_local(const std::string& address) {
  const SocketAddress name = numeric_address(address, 0);
  return ::bind(make_socket(name.family()).get(), name.get(), name.length) == 0;
}

bool is_wildcard(const std::string& address) { return address == "0.0.0.0" || address == "::"; }

bool is_loopback(const std::string& address) {
  const SocketAddress name = numeric_address(address, 0);
  if (name.family() == AF_INET) return bytes_of(name.get())[0] == std::byte{127};
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(name.get())->sin6_addr);
}

std::string local_address(const std::string& wanted) {
  const std::vector<LocalAddress> all = local_addresses();
  const std::optional<Subnet> subnet = subnet_from(wanted);
  for (const LocalAddress& local : all) {
    if (!local.link_local && (subnet ? subnet->contains(local) : local.interface == wanted)) return local.address;
  }
  std::string why;
  if (subnet) {
    why = "no network interface of this host has an address in this subnet";
  } else if (::if_nametoindex(wanted.c_str()) != 0) {
    why = "is a network interface of this host, but is down or has no address; bring it up, or name another";
  } else {
    try {
      for (const std::string& address : addresses_of(wanted)) {
        if (!is_wildcard(address) && is_local(address)) return address;
        why = is_wildcard(address) ? "stands for every address of this host, but the others need a single one"
                                   : "is no address of this host";
      }
    } catch (const CommError& error) {
      why = std::string("is no network interface of this host, no subnet, and ") + error.what();
    }
  }
  throw ConfigError({{"comm.interface", wanted, why + "; there are " + interfaces_text(), "", 0}});
}

std::string interfaces_text() {
  std::string text;
  for (const LocalAddress& local : local_addresses()) {
    if (!local.link_local) text += (text.empty() ? "" : ", ") + local.interface + " " + local.address;
  }
  return text.empty() ? "none that are up" : text;
}

FileDescriptor listen_on(const std::string& address, int port) {
  const SocketAddress name = numeric_address(address, port);
  FileDescriptor socket = make_socket(name.family());
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), name.get(), name.length) != 0 || ::listen(socket.get(), longest_queue) != 0) {
    // True if the given port belongs to another program or needs privileges.
    const bool other_will_do = port != 0 && (errno == EADDRINUSE || errno == EACCES);
    throw CommError("cannot listen on " + at(address, port) + ": " + errno_text() +
                    (other_will_do ? "; name another port, the same for all ranks: MASTER_PORT, or launch.rendezvous: "
                                     "tcp://HOST:PORT"
                                   : ""));
  }
  return socket;
}

int port_of(const FileDescriptor& socket) {
  SocketAddress name;
  name.length = sizeof name.storage;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name.storage), &name.length) != 0) {
    throw CommError("cannot find a socket's port: " + errno_text());
  }
  return ntohs(name.family() == AF_INET ? reinterpret_cast<const sockaddr_in*>(name.get())->sin_port
                                        : reinterpret_cast<const sockaddr_in6*>(name.get())->sin6_port);
}

FileDescriptor begin_connecting(const std::string& address, int port) {
  const SocketAddress name = numeric_address(address, port);
  FileDescriptor socket = make_socket(name.family());
  set_up_connection(socket);
  if (::connect(socket.get(), name.get(), name.length) != 0 && errno != EINPROGRESS) throw CommError(errno_text());
  return socket;
}

void set_up_connection(const FileDescriptor& socket) {
  const int on = 1, idle_s = 30, interval_s = 10;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
}

std::string problem_of(const FileDescriptor& connection) {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno_text();
  return error == 0 ? "" : std::strerror(error);
}

std::string at(const std::string& host, int port) {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
}

}  // namespace plait::comm
