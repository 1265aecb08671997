#include "comm/tcp/proof.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "comm/tcp/socket.h"
#include "core/error.h"

namespace plait::comm {
namespace {

constexpr std::string_view greeting("plait-1\0", 8);
constexpr const char* no_secret = " does not know this job's secret, or is of another job";
constexpr std::size_t digest_bytes = std::tuple_size_v<Digest>;
constexpr std::size_t hello_bytes = greeting.size() + sizeof(std::uint32_t) + digest_bytes;

std::string text_of(const Digest& digest) { return {reinterpret_cast<const char*>(digest.data()), digest.size()}; }

Digest digest_from(std::string_view text) {
  Digest digest{};
  std::memcpy(digest.data(), text.data(), digest.size());
  return digest;
}

}  // namespace

Proof::Proof(FileDescriptor socket, Side side, const Credentials& credentials, std::uint32_t number)
    : socket_(std::move(socket)), side_(side), credentials_(credentials), number_(number), step_(Step::connecting) {
  if (side_ == Side::listener) expect(Step::hello, hello_bytes);
}

Proof::State Proof::advance() {
  if (state_ == State::going_on && step_ == Step::connecting) {
    if (const std::string problem = problem_of(socket_); !problem.empty()) return refuse(problem);
    std::string hello(greeting);
    hello.append(reinterpret_cast<const char*>(&number_), sizeof number_);
    hello += text_of(random_digest());
    challenges_ = hello;
    expect(Step::challenge, digest_bytes);
    send(hello);
  }
  while (state_ == State::going_on && receive()) {
    switch (step_) {
      case Step::hello: take_hello(); break;
      case Step::challenge: take_challenge(); break;
      case Step::caller_claim:
        take_claim_of("caller");
        if (state_ == State::done) send(text_of(claim_of("listener")));
        break;
      case Step::listener_claim: take_claim_of("listener"); break;
      case Step::connecting: break;
    }
  }
  return state_;
}

void Proof::take_hello() {
  std::memcpy(&number_, received_.data() + greeting.size(), sizeof number_);
  challenges_ = received_;
  const std::string own = text_of(random_digest());
  challenges_ += own;
  expect(Step::caller_claim, digest_bytes);
  send(own);
}

void Proof::take_challenge() {
  challenges_ += received_;
  expect(Step::listener_claim, digest_bytes);
  send(text_of(claim_of("caller")));
}

void Proof::take_claim_of(const char* side) {
  if (equal_in_constant_time(digest_from(received_), claim_of(side))) {
    state_ = State::done;
  } else {
    refuse(std::string(side_ == Side::caller ? "who listens there" : "who calls") + no_secret);
  }
}

Digest Proof::claim_of(const char* side) const {
  const std::string& context = credentials_.context;
  return credentials_.secret.authenticate(std::string(side) + '\0' + std::to_string(context.size()) + '\0' + context +
                                          challenges_);
}

Secret Proof::session() const { return Secret(claim_of("session")); }

// True once this step's message is complete. A wrong greeting is refused as soon as it shows.
bool Proof::receive() {
  while (received_.size() < expected_) {
    std::array<char, hello_bytes + digest_bytes> bytes{};
    const ssize_t count = ::recv(socket_.get(), bytes.data(), expected_ - received_.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EINPROGRESS)) return false;
    if (count <= 0) {
      // A listener does not explain itself to a caller whose claim is wrong.
      const std::string closed = step_ == Step::listener_claim
                                     ? std::string("who listens there") + no_secret
                                     : "the other end closed the connection before it had proved itself";
      refuse(count == 0 ? closed : errno_text());
      return false;
    }
    received_.append(bytes.data(), static_cast<std::size_t>(count));
    const std::size_t shown = std::min(received_.size(), greeting.size());
    if (step_ == Step::hello && std::string_view(received_).substr(0, shown) != greeting.substr(0, shown)) {
      refuse("it does not speak plait's language");
      return false;
    }
  }
  return true;
}

// The socket's buffer is empty before each message, so it takes the whole message.
void Proof::send(const std::string& text) {
  const ssize_t sent = ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(text.size())) refuse(sent < 0 ? errno_text() : "it does not accept the whole message");
}

void Proof::expect(Step step, std::size_t bytes) {
  step_ = step;
  expected_ = bytes;
  received_.clear();
}

Proof::State Proof::refuse(const std::string& why) {
  why_ = why;
  return state_ = State::refused;
}

}  // namespace plait::comm
