#include "comm/gloo/loop_thread.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

namespace plait::comm {

LoopThread::LoopThread(gloo::transport::tcp::Device& device) : descriptor_(::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  device.registerDescriptor(descriptor_, EPOLLIN, this);
}

LoopThread::~LoopThread() { ::close(descriptor_); }

void LoopThread::run(const std::function<void()>& work) {
  std::unique_lock lock(mutex_);
  work_ = &work;
  wake();
  done_.wait(lock, [this] { return !work_; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void LoopThread::keep_turning(bool on) noexcept {
  std::lock_guard lock(mutex_);
  turning_ = on;
  wake();
}

void LoopThread::handleEvents(int) {
  std::unique_lock lock(mutex_);
  if (work_) {
    try {
      (*work_)();
    } catch (...) {
      failure_ = std::current_exception();
    }
    work_ = nullptr;
    done_.notify_one();
  }
  if (turning_) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));  // leaves the core to the threads that wait for the turn
  } else {
    eventfd_t count = 0;
    static_cast<void>(::eventfd_read(descriptor_, &count));
  }
}

void LoopThread::wake() noexcept { static_cast<void>(::eventfd_write(descriptor_, 1)); }

}  // namespace plait::comm
