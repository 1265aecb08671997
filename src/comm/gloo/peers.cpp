#include "comm/gloo/peers.h"

#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/device.h>
#include <pthread.h>

#include <csignal>
#include <ctime>
#include <limits>
#include <utility>

#include "comm/gloo/transport.h"
#include "comm/meeting.h"
#include "comm/tcp/introductions.h"
#include "comm/tcp/socket.h"
#include "core/error.h"

namespace plait::comm {
namespace {

// Gloo writes to sockets without MSG_NOSIGNAL, so a peer's death would raise SIGPIPE and kill this process. This blocks it for
// the calling thread and, most important, for the loop's thread that is made meanwhile; it swallows one that was raised.
class SigpipeBlock {
 public:
  SigpipeBlock() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &previous_);
  }
  SigpipeBlock(const SigpipeBlock&) = delete;
  SigpipeBlock& operator=(const SigpipeBlock&) = delete;
  ~SigpipeBlock() {
    if (!was_pending_) {
      const timespec no_wait{0, 0};
      sigtimedwait(&sigpipe_, nullptr, &no_wait);
    }
    pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  }

 private:
  sigset_t sigpipe_{};
  sigset_t previous_{};
  bool was_pending_ = false;
};

// A full mesh of existing connections. Gloo's own way to make one accepts the first caller.
class Mesh final : public gloo::Context {
 public:
  Mesh(std::shared_ptr<gloo::transport::Device> device, int rank, std::vector<FileDescriptor> sockets,
       std::chrono::milliseconds timeout)
      : gloo::Context(rank, static_cast<int>(sockets.size())) {
    transportContext_ = adopt_pairs(device, rank, std::move(sockets), timeout);
    device_ = std::move(device);
  }
};

// A slot that no call uses: sequences count from 1.
constexpr std::uint64_t unused_slot = 0;

// A peer may leave as soon as it has everything it needs. If a wait wakes up only then, Gloo reports the loss even if the
// message was complete before; asked again, it looks at the message first.
template <typename Wait>
bool wait_for_message(Wait wait, std::chrono::milliseconds timeout) {
  try {
    return wait(timeout);
  } catch (...) {
    try {
      if (wait(std::chrono::milliseconds(1))) return true;
    } catch (...) {
      // The loss again; the first report is rethrown.
    }
    throw;
  }
}

// The offset of memory in a Connection's windows.
std::size_t offset_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

}  // namespace

void Peers::connect(const GroupSpec& spec, Meeting& meeting) {
  const SigpipeBlock no_sigpipe;
  try {
    const std::string address = local_address(spec.host_interface);
    std::vector<FileDescriptor> sockets = introduce(meeting, "gloo/addresses", address);
    auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(address.c_str()));
    loop_ = std::make_unique<LoopThread>(static_cast<gloo::transport::tcp::Device&>(*device));
    loop_->run([&] { context_ = std::make_shared<Mesh>(device, spec.rank, std::move(sockets), spec.timeout); });
    make_links();
    // A rank that finishes at once must not close its connections while another still waits for its own to come up.
    meeting.meet("gloo/connected");
    loop_->keep_turning(false);
  } catch (ConfigError&) {
    throw;
  } catch (const CommError& error) {
    throw CommError(label("cannot join") + ": " + error.what());
  } catch (const std::exception& error) {
    throw CommError(label("cannot connect on ") + spec.host_interface + " (comm.interface): " + error.what());
  }
}

Peers::Peers(const GroupSpec& spec, Meeting& meeting)
    : name_(spec.name), rank_(spec.rank), size_(spec.size), timeout_(spec.timeout) {
  try {
    connect(spec, meeting);
  } catch (...) {
    drop_links();
    throw;
  }
}

Peers::~Peers() {
  loop_->keep_turning(true);
  drop_links();
}

void Peers::make_links() {
  links_.resize(static_cast<std::size_t>(size_));
  loop_->run([this] {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      Connection& link = links_[static_cast<std::size_t>(peer)];
      for (auto* window : {&link.out, &link.in}) {
        *window = context_->createUnboundBuffer(nullptr, std::numeric_limits<std::size_t>::max());
        (*window)->recv(peer, unused_slot, 0, 0);
      }
    }
  });
}

// Runs on the loop's thread, which may be about to tell a link that its peer has gone.
void Peers::drop_links() noexcept {
  if (!links_.empty()) loop_->run([this] { links_.clear(); });
}

void Peers::exchange(const CallId& call, int to, const void* out, std::size_t out_bytes, int from, void* in,
                     std::size_t in_bytes) {
  check_open(call.name);
  gloo::transport::UnboundBuffer* const send = out_bytes ? links_[static_cast<std::size_t>(to)].out.get() : nullptr;
  gloo::transport::UnboundBuffer* const receive = in_bytes ? links_[static_cast<std::size_t>(from)].in.get() : nullptr;
  const std::uint64_t slot = std::uint64_t{call.signature} << 32 | call.sequence;
  auto waiting_since = std::chrono::steady_clock::now();
  int peer = from;
  bool interrupted = false;
  try {
    {
      std::lock_guard lock(connections_);
      loop_->run([&] {
        if (receive) receive->recv(from, slot, offset_of(in), in_bytes);
        peer = to;
        if (send) send->send(to, slot, offset_of(out), out_bytes);
      });
    }
    waiting_since = std::chrono::steady_clock::now();
    peer = from;
    if (receive) interrupted = !wait_for_message([&](auto limit) { return receive->waitRecv(limit); }, timeout_);
    waiting_since = std::chrono::steady_clock::now();
    peer = to;
    if (send && !interrupted) interrupted = !wait_for_message([&](auto limit) { return send->waitSend(limit); }, timeout_);
  } catch (const std::exception& error) {
    const bool timed_out = std::chrono::steady_clock::now() - waiting_since >= timeout_;
    close(describe_loss(peer, timed_out, error.what()), !timed_out);
    interrupted = true;
  }
  if (!interrupted) return;
  close_connections();  // an earlier close() may still be running, and the memory now returns to the caller
  check_open(call.name);
}

std::string Peers::describe_loss(int peer, bool timed_out, const char* detail) const {
  const std::string who = "rank " + std::to_string(peer);
  if (timed_out) {
    return "no answer from " + who + " for " + std::to_string(timeout_.count()) +
           " ms: it hangs, is slower than comm.timeout_s, or made another call";
  }
  return "lost the connection to " + who + ": it died or gave up, see its own error (" + detail + ")";
}

void Peers::close(const std::string& reason) noexcept { close(reason, false); }

void Peers::close(const std::string& reason, bool peer_lost) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (closed_reason_) return;
    closed_reason_ = reason;
    peer_lost_ = peer_lost;
  }
  for (Connection& link : links_) {
    if (link.out) link.out->abortWaitSend();
    if (link.in) link.in->abortWaitRecv();
  }
  close_connections();
}

void Peers::close_connections() noexcept {
  loop_->keep_turning(true);
  try {
    std::lock_guard lock(connections_);
    context_->closeConnections();
  } catch (...) {
    // Nothing is left to close; close() has ended the pending calls.
    return;
  }
}

void Peers::check_open(const char* call_name) const {
  std::lock_guard lock(mutex_);
  if (closed_reason_ && peer_lost_) throw PeerLostError(label(call_name) + ": " + *closed_reason_);
  if (closed_reason_) throw CommError(label(call_name) + ": " + *closed_reason_);
}

std::string Peers::label(const char* call_name) const {
  return "group '" + name_ + "', rank " + std::to_string(rank_) + " of " + std::to_string(size_) + ": " + call_name;
}

}  // namespace plait::comm
