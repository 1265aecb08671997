#include "comm/gloo/transport.h"

#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/pair.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

#include "core/error.h"

namespace plait::comm {
namespace {

namespace tcp = gloo::transport::tcp;

class AdoptedPair final : public tcp::Pair {
 public:
  AdoptedPair(tcp::Context* context, tcp::Device* device, int peer, std::chrono::milliseconds timeout, FileDescriptor socket)
      : tcp::Pair(context, device, peer, timeout) {
    // These come before anything that the base's destructor would have to undo: they fail if the peer has gone meanwhile.
    const tcp::Address self = tcp::Address::fromSockName(socket.get()), there = tcp::Address::fromPeerName(socket.get());
    std::lock_guard lock(m_);
    if (fd_ >= 0) {  // it may have begun to listen
      device_->unregisterDescriptor(fd_, this);
      ::close(fd_);
    }
    fd_ = socket.release();
    self_ = self;
    peer_ = there;
    state_ = CONNECTED;  // from now on the base closes the descriptor
    device_->registerDescriptor(fd_, EPOLLIN, this);
  }
};

class AdoptingContext final : public tcp::Context {
 public:
  AdoptingContext(std::shared_ptr<tcp::Device> device, int rank, std::vector<FileDescriptor> sockets)
      : tcp::Context(std::move(device), rank, static_cast<int>(sockets.size())), sockets_(std::move(sockets)) {}

  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override {
    const auto index = static_cast<std::size_t>(peer);
    pairs_[index] = std::make_unique<AdoptedPair>(this, device_.get(), peer, getTimeout(), std::move(sockets_[index]));
    return pairs_[index];
  }

 private:
  std::vector<FileDescriptor> sockets_;  // of pairs that are still to be made
};

}  // namespace

std::shared_ptr<gloo::transport::Context> adopt_pairs(const std::shared_ptr<gloo::transport::Device>& device, int rank,
                                                      std::vector<FileDescriptor> sockets, std::chrono::milliseconds timeout) {
  auto tcp_device = std::dynamic_pointer_cast<tcp::Device>(device);
  require(tcp_device != nullptr, "adopt_pairs: not a device of the TCP transport");
  const int size = static_cast<int>(sockets.size());
  auto context = std::make_shared<AdoptingContext>(std::move(tcp_device), rank, std::move(sockets));
  context->setTimeout(timeout);
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) context->createPair(peer);
  }
  return context;
}

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
