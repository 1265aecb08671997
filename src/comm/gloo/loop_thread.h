// The thread of a Gloo device's event loop, with two extra uses for which Gloo has no call.
#pragma once

#include <gloo/transport/tcp/device.h>

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>

namespace plait::comm {

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
