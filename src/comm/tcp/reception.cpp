#include "comm/tcp/reception.h"

#include <fcntl.h>
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
// A call that stays unanswered this long is given up and made anew; one that has not proved itself by then is dropped.
constexpr std::chrono::milliseconds longest_call{10'000}, shortest_call{2'000};
constexpr int most_at_once = 64;

FileDescriptor open_spare() { return FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

Reception::Reception(std::vector<FileDescriptor> listeners, Credentials credentials, std::size_t expected)
    : events_(::epoll_create1(EPOLL_CLOEXEC)),
      spare_(open_spare()),
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
  drop_old();
  std::vector<Proven> proven;
  std::vector<std::uint64_t> calling;  // listeners; handled after those that may make room
  std::array<epoll_event, 64> events{};
  const int count = ::epoll_wait(events_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t id = events[static_cast<std::size_t>(i)].data.u64;
    if (id < listeners_.size()) {
      calling.push_back(id);
      continue;
    }
    const auto found = waiting_.find(id);
    if (found == waiting_.end()) continue;
    const Proof::State state = found->second.proof.advance();
    if (state == Proof::State::going_on) continue;
    Proof proof = std::move(waiting_.extract(found).mapped().proof);
    if (state == Proof::State::refused) {
      ++strangers_;
      continue;
    }
    const Secret session = proof.session();
    FileDescriptor socket = proof.take_socket();
    ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
    proven.push_back({proof.number(), std::move(socket), session});
  }
  for (const std::uint64_t id : calling) take_calls(listeners_[id]);
  return proven;
}

// At most `most_at_once`: accepted callers must get a chance to prove themselves before others displace them.
void Reception::take_calls(const FileDescriptor& listener) {
  for (int taken = 0; taken < most_at_once; ++taken) {
    FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      const bool no_room = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (no_room && drop_oldest()) continue;
      if (no_room && spare_) {  // accepted and dropped, since it would keep the listener ready; a rank calls again
        spare_ = FileDescriptor();
        {
          const FileDescriptor dropped(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        }
        spare_ = open_spare();
        return;
      }
      if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
      return;
    }
    set_up_connection(socket);
    if (waiting_.size() == room_) drop_oldest();
    const std::uint64_t id = next_id_++;
    watch(socket.get(), id);
    waiting_.try_emplace(id, Clock::now(), Proof(std::move(socket), Proof::Side::listener, credentials_));
  }
}

void Reception::drop_old() {
  const auto oldest = Clock::now() - longest_call;
  while (!waiting_.empty() && waiting_.begin()->second.since < oldest) drop_oldest();
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
  address_ = addresses[calls_++ % addresses.size()];
  // An address that swallows packets must not use up the time of the others.
  wake_ = Clock::now() + std::max(longest_call / static_cast<int>(addresses.size()), shortest_call);
  proof_.emplace(begin_connecting(address_, port_), Proof::Side::caller, credentials_, number_);
}

bool Caller::advance() {
  if (done_) return true;
  try {
    const bool due = Clock::now() >= wake_;
    if (!proof_ && !due) return false;
    const bool gives_up = proof_ && due;  // unless the answer has arrived: this process may have been stopped meanwhile
    if (!proof_) begin();
    pollfd made{proof_->descriptor(), POLLOUT, 0};
    const bool connected = !proof_->connecting() || ::poll(&made, 1, 0) == 1;
    const Proof::State state = connected ? proof_->advance() : Proof::State::going_on;
    if (state == Proof::State::refused) throw CommError(proof_->why());
    if (state == Proof::State::going_on && gives_up) throw CommError("no answer");
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
  require(done_, "a caller without a proven connection");
  const Secret session = proof_->session();
  return {proof_->number(), proof_->take_socket(), session};
}

}  // namespace plait::comm
