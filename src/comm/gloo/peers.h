// The connections among the ranks of a host group, and `exchange`, of which all of the group's calls are made.
//
// Gloo does the networking once the connections exist (one epoll thread, ordered messages); transport.h says why it does
// not make them. Its own collectives are not used: a wait inside them cannot be ended from another thread, and its error does
// not say which peer it waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace gloo {
class Context;
namespace transport {
class UnboundBuffer;
}
}  // namespace gloo

namespace plait::comm {

class LoopThread;
class Meeting;

// Identifies one call; the same on all ranks that take part in it.
struct CallId {
  const char* name = "";        // "all_reduce"
  std::uint32_t sequence = 0;   // counts the group's collectives, or the messages of one rank to another, from 1
  std::uint32_t signature = 0;  // hash of everything the ranks must agree on; calls that differ never match, and time out
};

class Peers {
 public:
  // Connects to all peers, who introduce themselves in `meeting` (comm/tcp/introductions.h). CommError when that takes longer
  // than spec.timeout; ConfigError if spec.host_interface is not one of this host, or does not reach a peer's.
  Peers(const GroupSpec& spec, Meeting& meeting);
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  ~Peers();

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Sends `out_bytes` to rank `to` while receiving `in_bytes` from rank `from`; blocks until both are done. A side of zero
  // bytes is skipped. The two sides of a message must agree on its size, and make their exchanges in the same order.
  // CommError, naming call and peer, when a peer is lost, silent for spec.timeout, or close() is called; the group is closed
  // from then on. One exchange at a time.
  void exchange(const CallId& call, int to, const void* out, std::size_t out_bytes, int from, void* in, std::size_t in_bytes);

  // Ends a pending exchange and all later ones with `reason`, here and, by closing the connections, on the peers. From any
  // thread; the first reason wins.
  void close(const std::string& reason) noexcept;
  void check_open(const char* call_name) const;  // CommError (PeerLostError) with the reason once closed

 private:
  // The traffic with one peer, through windows of the whole address space.
  //
  // Gloo reports a lost connection to a buffer while a receive waits for its match, but not in the middle of a message. So each
  // window keeps one receive pending that is never matched and therefore lasts as long as the connection.
  struct Connection {
    std::unique_ptr<gloo::transport::UnboundBuffer> out, in;
  };

  void connect(const GroupSpec& spec, Meeting& meeting);
  void make_links();
  void drop_links() noexcept;
  void close_connections() noexcept;
  std::string label(const char* call_name) const;  // "group 'data', rank 1 of 4: all_reduce"
  void close(const std::string& reason, bool peer_lost) noexcept;
  std::string describe_loss(int peer, bool timed_out, const char* detail) const;

  const std::string name_;
  const int rank_;
  const int size_;
  const std::chrono::milliseconds timeout_;
  std::unique_ptr<LoopThread> loop_;  // outlives the context's device
  std::shared_ptr<gloo::Context> context_;
  std::vector<Connection> links_;  // by peer; none to this rank itself

  // Closing a connection holds this lock while waiting for the loop to turn, so the loop's thread must not take it then.
  std::mutex connections_;

  mutable std::mutex mutex_;  // guards the members below
  std::optional<std::string> closed_reason_;
  bool peer_lost_ = false;  // the reason
};

}  // namespace plait::comm
