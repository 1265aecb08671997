#include "comm/tcp/reception.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "comm/tcp/socket.h"
#include "core/error.h"

namespace plait::comm {
namespace {

constexpr std::chrono::milliseconds first_pause{5}, longest_pause{500};
// A call that is not answered for so long is given up and made anew.
constexpr std::chrono::seconds longest_call{10};

}  // namespace

Reception::Reception(std::vector<FileDescriptor> listeners, Credentials credentials, std::size_t expected)
    : events_(::epoll_create1(EPOLL_CLOEXEC)),
      listeners_(std::move(listeners)),
      credentials_(std::move(credentials)),
      room_(least_room + expected),
      next_id_(listeners_.size()) {
  if (!events_) throw CommError("cannot wait for connections: " + errno_text());
  for (std::size_t i = 0; i < listeners_.size(); ++i) watch(listeners_[i].get(), i);
}

void Reception::watch(int descriptor, std::uint64_t id) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id;
  if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
    throw CommError("cannot wait for connections: " + errno_text());
  }
}

std::vector<Proven> Reception::serve() {
  std::vector<Proven> proven;
  std::array<epoll_event, 64> events{};
  const int count = ::epoll_wait(events_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t id = events[static_cast<std::size_t>(i)].data.u64;
    if (id < listeners_.size()) {
      take_calls(listeners_[id]);
      continue;
    }
    const auto found = waiting_.find(id);
    if (found == waiting_.end()) continue;
    const Proof::State state = found->second.advance();
    if (state == Proof::State::going_on) continue;
    Proof proof = std::move(waiting_.extract(found).mapped());
    if (state == Proof::State::refused) {
      ++strangers_;
      continue;
    }
    const Secret session = proof.session();
    FileDescriptor socket = proof.take_socket();
    ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
    proven.push_back({proof.number(), std::move(socket), session});
  }
  return proven;
}

void Reception::take_calls(const FileDescriptor& listener) {
  for (;;) {
    FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      const bool no_room = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (no_room && drop_oldest()) continue;
      if (no_room) throw CommError("cannot take a connection: " + errno_text() + " (ulimit -n)");
      if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
      return;
    }
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (waiting_.size() == room_) drop_oldest();
    const std::uint64_t id = next_id_++;
    watch(socket.get(), id);
    waiting_.try_emplace(id, std::move(socket), Proof::Side::listener, credentials_);
  }
}

bool Reception::drop_oldest() {
  if (waiting_.empty()) return false;
  waiting_.erase(waiting_.begin());
  ++strangers_;
  return true;
}

Caller::Caller(std::string host, int port, Credentials credentials, std::uint32_t number)
    : host_(std::move(host)), port_(port), credentials_(std::move(credentials)), number_(number), pause_(first_pause) {}

void Caller::begin() {
  const std::vector<std::string> addresses = addresses_of(host_);
  proof_.emplace(begin_connecting(addresses[calls_++ % addresses.size()], port_), Proof::Side::caller, credentials_, number_);
  problem_ = "no answer";
  wake_ = Clock::now() + longest_call;
}

bool Caller::advance() {
  if (done_) return true;
  try {
    const bool due = Clock::now() >= wake_;
    if (!proof_ && !due) return false;
    if (proof_ && due) throw CommError("no answer");
    if (!proof_) begin();
    pollfd made{proof_->descriptor(), POLLOUT, 0};
    if (proof_->connecting() && ::poll(&made, 1, 0) != 1) return false;
    const Proof::State state = proof_->advance();
    if (state == Proof::State::refused) throw CommError(proof_->why());
    return done_ = state == Proof::State::done;
  } catch (const CommError& error) {
    problem_ = error.what();
    proof_.reset();
    wake_ = Clock::now() + pause_;
    pause_ = std::min(2 * pause_, longest_pause);
    return false;
  }
}

short Caller::awaited() const { return proof_ && proof_->connecting() ? POLLOUT : POLLIN; }

std::string Caller::problem() const { return at(host_, port_) + ": " + problem_; }

Proven Caller::take() {
  require(done_, "a caller that has reached nobody");
  const Secret session = proof_->session();
  return {proof_->number(), proof_->take_socket(), session};
}

}  // namespace plait::comm
