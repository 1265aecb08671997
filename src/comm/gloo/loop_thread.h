// The thread of a Gloo device's event loop, put to two uses that Gloo itself has no call for.
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

  // Runs `work` on the loop's thread, waits until it is done and throws what it threw. One caller at a time.
  //
  // For sends and receives: they lock their connection, and while another thread holds that lock, the loop does not sleep but
  // polls the connection's socket without end. Where there are more threads than cores, the one that holds the lock then waits
  // for the loop to use up its time slice: milliseconds for every small message. The loop's own thread never meets a lock.
  void run(const std::function<void()>& work);

  // Whoever takes a socket out of the loop waits for its next turn, and an idle loop turns every 10 ms. Connecting and closing
  // do that for one connection after the other, so the loop is kept turning meanwhile. From any thread.
  void keep_turning(bool on) noexcept;

 private:
  void handleEvents(int events) override;
  void wake() noexcept;

  const int descriptor_;  // an eventfd, readable while there is something to do
  std::mutex mutex_;      // guards what follows
  std::condition_variable done_;
  const std::function<void()>* work_ = nullptr;
  std::exception_ptr failure_;
  bool turning_ = true;
};

}  // namespace plait::comm
