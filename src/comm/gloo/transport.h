// Gloo's TCP transport over connections that plait made itself.
//
// Gloo's own pairs (tcp::Pair, here of 2022) each listen at a port of their own and take the first connection for the peer: no
// byte is exchanged to tell who it is. A process that polls /proc/net/tcp while a job starts is therefore taken for a rank, and
// the rank is refused. Three ways were weighed:
//
//
//   * Gloo's TLS transport, with an authority made for each job. Debian's library is built without it; it would encrypt the
//     ranks' exchanges at the price of some cores; and a pair still listens for one connection: a stranger who stays silent
//     there, or fails the handshake, ends the start instead of being taken for a peer.
//   * The device-wide listener of later versions, which reads a sequence number from each caller. A number is guessed at once.
//   * Making the connections ourselves (comm/tcp/introductions.h), proven before Gloo sees them, and handing the sockets over.
//
// The third holds against everything a stranger can do before the start is over, names the missing ranks, and costs one
// exchange of 140 bytes for each pair of ranks. It needs nothing of Gloo but what a subclass sees: the descriptor, the state
// and the device of a pair. Its limits: the connections are not encrypted, and anyone who can change packets on the way can
// change data.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/file.h"

namespace plait::comm {

// A context whose pairs are `sockets`, by rank; no socket for the rank itself. Must be called on the device's own thread
// (LoopThread): while the call runs, that thread takes nothing from the port that Gloo opens, for some microseconds, when it
// makes a pair.
std::shared_ptr<gloo::transport::Context> adopt_pairs(const std::shared_ptr<gloo::transport::Device>& device, int rank,
                                                      std::vector<FileDescriptor> sockets, std::chrono::milliseconds timeout);

// The thread of a Gloo device's event loop, with two extra uses for which Gloo has no call.

// Must outlive the device, whose loop goes on looking at its descriptor.
class LoopThread final : public gloo::transport::tcp::Handler {
 public:
  explicit LoopThread(gloo::transport::tcp::Device& device);  // turning
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;
  ~LoopThread() override;

  // Runs `work` on the loop's thread, waits until it is done and rethrows its exception. One caller at a time.
  //
  // For sends and receives. They lock their connection, and while another thread holds that lock, the loop does not sleep but
  // keeps polling the connection's socket. If there are more threads than cores, the thread holding the lock then waits for the
  // loop to use up its time slice: milliseconds for every small message. On the loop's own thread there is no contention.
  void run(const std::function<void()>& work);

  // Taking a socket out of the loop waits for the loop's next turn, and an idle loop turns every 10 ms. Connecting and closing
  // do that for each connection in turn, so the loop is kept turning meanwhile. From any thread.
  void keep_turning(bool on) noexcept;

 private:
  void handleEvents(int events) override;
  void wake() noexcept;

  const int descriptor_;  // an eventfd, readable while there is something to do
  std::mutex mutex_;      // guards the members below
  std::condition_variable done_;
  const std::function<void()>* work_ = nullptr;
  std::exception_ptr failure_;
  bool turning_ = true;
};

}  // namespace plait::comm
