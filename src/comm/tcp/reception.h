// The two ends of new proven connections: a Reception takes calls, a Caller makes one. Neither blocks; both are polled.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/tcp/proof.h"
#include "core/file.h"

namespace plait::comm {

// A connection whose other end has proved itself. Its socket does not block.
struct Proven {
  std::uint32_t number = 0;  // identifies the caller
  FileDescriptor socket;
  Secret session;
};

// Takes connections at its listeners and lets in those that prove themselves. A stranger is dropped as soon as it is
// recognised. A silent caller may wait, together with others, for 10 s, or until more come than there is room or descriptors
// for; then the oldest is dropped. A caller of this job that was dropped with them calls again.
class Reception {
 public:
  static constexpr std::size_t least_room = 128;  // for connections that are not proven yet

  // `expected`: callers that may come at the same moment; there is room for all of them in addition to strangers.
  Reception(std::vector<FileDescriptor> listeners, Credentials credentials, std::size_t expected);

  int descriptor() const { return events_.get(); }  // readable when serve() has something to do
  std::vector<Proven> serve();
  std::uint64_t strangers() const { return strangers_; }  // dropped so far

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    Waiting(Clock::time_point now, Proof of) : since(now), proof(std::move(of)) {}
    Clock::time_point since;
    Proof proof;
  };

  void take_calls(const FileDescriptor& listener);
  void watch(int descriptor, std::uint64_t id);
  void drop_old();
  bool drop_oldest();

  FileDescriptor events_;  // epoll
  FileDescriptor spare_;   // given up for a moment if no other descriptor is left
  const std::vector<FileDescriptor> listeners_;
  const Credentials credentials_;
  const std::size_t room_;
  std::map<std::uint64_t, Waiting> waiting_;  // by id, which grows with age; ids below listeners_.size() are those of listeners
  std::uint64_t next_id_;
  std::uint64_t strangers_ = 0;
};

// Calls a listener that may not exist yet, or that strangers may keep from answering, again and again until it proves itself.
// `host` is looked up anew for each call.
class Caller {
 public:
  using Clock = std::chrono::steady_clock;

  Caller(std::string host, int port, Credentials credentials, std::uint32_t number);

  // Proceeds as far as it can without waiting; true once it is done.
  bool advance();
  int descriptor() const { return proof_ ? proof_->descriptor() : -1; }
  short awaited() const;                                   // POLLIN or POLLOUT
  Clock::time_point wake() const { return wake_; }         // when to call advance() even without an event
  std::string problem() const;                             // why it is not done: "node-1:29500: Connection refused"
  const std::string& address() const { return address_; }  // of the last call
  Proven take();

 private:
  void begin();

  const std::string host_;
  const int port_;
  const Credentials credentials_;
  const std::uint32_t number_;
  std::optional<Proof> proof_;
  bool done_ = false;
  std::size_t calls_ = 0;
  std::string address_;
  std::string problem_ = "no answer";
  std::chrono::milliseconds pause_;
  Clock::time_point wake_ = Clock::now();
};

}  // namespace plait::comm
