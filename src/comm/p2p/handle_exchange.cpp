#include "comm/p2p/handle_exchange.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "core/error.h"

namespace plait::comm::p2p {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t random_bytes = 16;
constexpr std::size_t random_digits = 2 * random_bytes;
constexpr std::size_t strangers_at_once = 16;
constexpr char here_it_is = 'd';  // travels with the descriptor
constexpr char i_have_it = 'k';

std::string random_hex() {
  std::array<std::byte, random_bytes> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw CommError("handle exchange: no random bytes: " + errno_text());
  }
  return to_hex(bytes);
}

// Word in the meeting: where the giver listens, and the token that a taker has to present.
struct Invitation {
  std::string socket;
  std::string token;
};

// Random bytes as text.
struct RandomText {
  std::string read(const JsonField& field) const {
    std::array<std::byte, random_bytes> bytes{};
    read_hex(field, bytes);
    return to_hex(bytes);
  }
  std::string write(const std::string& text) const { return text; }
};

void declare(auto& field, Of<Invitation> auto& invitation) {
  field("socket", invitation.socket, RandomText());
  field("token", invitation.token, RandomText());
}

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// A leading zero byte puts the name into the abstract namespace: it goes away with its socket.
Address abstract_address(const std::string& socket) {
  const std::string path = std::string(1, '\0') + "plait-" + socket;
  Address result;
  result.address.sun_family = AF_UNIX;
  std::memcpy(result.address.sun_path, path.data(), path.size());
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  return result;
}

// SEQPACKET keeps messages apart, so they need no reassembly.
FileDescriptor make_socket() {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0) throw CommError("handle exchange: cannot make a Unix socket: " + errno_text());
  return socket;
}

bool is_of_this_user(int connection) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  return ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 && credentials.uid == ::geteuid();
}

// Ends a wait when the meeting's time is up, or when a rank gave up and aborted the job's rendezvous.
class Patience {
 public:
  Patience(const Meeting& meeting, std::string name, Clock::time_point start)
      : meeting_(meeting), name_(std::move(name)), deadline_(start + meeting.timeout()) {}

  // Waits for one of `events`, and returns after a moment without any; CommError at the end of patience.
  void wait(std::vector<pollfd>& events) const {
    for (pollfd& event : events) event.revents = 0;
    meeting_.check();
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
    if (left.count() <= 0) {
      throw CommError("handle exchange: '" + name_ + "': the peer did not come within " +
                      std::to_string(meeting_.timeout().count()) +
                      " ms; it did not start, it died, or it makes its links in another order");
    }
    const int tick = static_cast<int>(std::min<std::int64_t>(left.count(), 100));
    if (::poll(events.data(), events.size(), tick) < 0 && errno != EINTR) {
      throw CommError("handle exchange: '" + name_ + "': cannot wait for the peer: " + errno_text());
    }
  }
  void wait(int descriptor, short event) const {
    std::vector<pollfd> events = {{descriptor, event, 0}};
    do wait(events);
    while (events[0].revents == 0);
  }

 private:
  const Meeting& meeting_;
  std::string name_;
  Clock::time_point deadline_;
};

CommError not_taken(const std::string& name, const std::string& why) {
  return CommError("handle exchange: '" + name + "': the peer did not take the file descriptor (" + why +
                   "); see its own error");
}

void send_with_descriptor(int connection, int descriptor, const std::string& name) {
  char byte = here_it_is;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  if (::sendmsg(connection, &message, MSG_NOSIGNAL) != 1) {
    throw not_taken(name, errno_text());
  }
}

// Owns the descriptor as soon as it arrives, so that a refused one is closed.
FileDescriptor receive_descriptor(int connection, const std::string& name) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(8 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t length = ::recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  const int receive_error = errno;
  std::vector<FileDescriptor> descriptors;
  if (length >= 0) {
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int descriptor = -1;
        std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof descriptor);
        descriptors.emplace_back(descriptor);
      }
    }
  }
  const auto refuse = [&](const std::string& why) { throw CommError("handle exchange: '" + name + "': " + why); };
  if (length < 0) refuse(std::string("cannot receive the file descriptor: ") + std::strerror(receive_error));
  if (length == 0) refuse("the peer closed the connection before it sent its file descriptor; it gave up or died");
  if (message.msg_flags & MSG_CTRUNC) {
    refuse("the peer's file descriptors were lost: there were too many, or this process may not open more (ulimit -n)");
  }
  if (message.msg_flags & MSG_TRUNC || byte != here_it_is) refuse("the peer sent something that is not plait's");
  if (descriptors.size() != 1)
    refuse("the peer sent " + std::to_string(descriptors.size()) + " file descriptors instead of one");
  return std::move(descriptors.front());
}

enum class Caller { silent, stranger, peer };

// The state of a caller, from what it has sent so far.
Caller caller_on(int connection, const std::string& token) {
  std::array<char, random_digits + 1> said{};
  const ssize_t length = ::recv(connection, said.data(), said.size(), 0);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return Caller::silent;
  const bool knows = length == static_cast<ssize_t>(token.size()) && std::memcmp(said.data(), token.data(), token.size()) == 0;
  return knows ? Caller::peer : Caller::stranger;
}

// Takes connections until one presents the token; others are dropped, and a silent one does not keep the peer out.
FileDescriptor await_peer(int listener, const std::string& token, const Patience& patience) {
  std::vector<FileDescriptor> callers;
  for (;;) {
    std::vector<pollfd> events = {{listener, POLLIN, 0}};
    for (const FileDescriptor& caller : callers) events.push_back({caller.get(), POLLIN, 0});
    patience.wait(events);
    std::vector<FileDescriptor> still_silent;
    for (std::size_t i = 0; i < callers.size(); ++i) {
      const Caller who = events[i + 1].revents == 0 ? Caller::silent : caller_on(callers[i].get(), token);
      if (who == Caller::peer) return std::move(callers[i]);
      if (who == Caller::silent) still_silent.push_back(std::move(callers[i]));
    }
    callers = std::move(still_silent);
    if (events[0].revents == 0) continue;
    FileDescriptor caller(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (caller.get() < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      throw CommError("handle exchange: cannot take a connection: " + errno_text());
    }
    if (caller.get() < 0 || !is_of_this_user(caller.get())) continue;
    if (callers.size() == strangers_at_once) callers.erase(callers.begin());
    callers.push_back(std::move(caller));
  }
}

}  // namespace

void HandleExchange::give_descriptor(const std::string& name, int descriptor) {
  const Invitation invitation{random_hex(), random_hex()};
  const FileDescriptor listener = make_socket();
  const Address address = abstract_address(invitation.socket);
  if (::bind(listener.get(), address.get(), address.length) != 0 || ::listen(listener.get(), 16) != 0) {
    throw CommError("handle exchange: '" + name + "': cannot listen on a Unix socket: " + errno_text());
  }
  give(name, invitation);
  const Patience patience(meeting_, name, Clock::now());
  const FileDescriptor peer = await_peer(listener.get(), invitation.token, patience);
  send_with_descriptor(peer.get(), descriptor, name);
  patience.wait(peer.get(), POLLIN);
  char answer = 0;
  if (::recv(peer.get(), &answer, 1, 0) != 1 || answer != i_have_it) {
    throw not_taken(name, "it closed the connection");
  }
}

FileDescriptor HandleExchange::take_descriptor(const std::string& name) {
  const auto start = Clock::now();
  const auto invitation = take<Invitation>(name);
  const Patience patience(meeting_, name, start);
  const FileDescriptor connection = make_socket();
  const Address address = abstract_address(invitation.socket);
  while (::connect(connection.get(), address.get(), address.length) != 0) {
    if (errno != EAGAIN && errno != EINTR) {
      throw CommError("handle exchange: '" + name + "': cannot reach the peer's Unix socket: " + errno_text() +
                      "; the peer gave up or died, or the two processes are in different network namespaces (containers)");
    }
    std::vector<pollfd> nothing;  // the queue of connections is full: try later
    patience.wait(nothing);
  }
  if (!is_of_this_user(connection.get())) {
    throw CommError("handle exchange: '" + name + "': another user's process listens in the peer's place");
  }
  if (::send(connection.get(), invitation.token.data(), invitation.token.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(invitation.token.size())) {
    throw CommError("handle exchange: '" + name + "': cannot talk to the peer: " + errno_text());
  }
  patience.wait(connection.get(), POLLIN);
  FileDescriptor descriptor = receive_descriptor(connection.get(), name);
  static_cast<void>(::send(connection.get(), &i_have_it, 1, MSG_NOSIGNAL));  // if this does not arrive, the giver reports it
  return descriptor;
}

}  // namespace plait::comm::p2p
