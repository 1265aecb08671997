#include "comm/tcp/introductions.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <map>
#include <optional>

#include "comm/p2p/facts.h"
#include "comm/tcp/reception.h"
#include "comm/tcp/socket.h"
#include "core/device.h"
#include "core/error.h"

namespace plait::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds longest_nap{100};  // between looks at whether the rendezvous has been aborted

// A member's word to the others.
struct Whereabouts {
  std::string address;
  int port = 0;
  Digest token{};
  p2p::ProcessIdentity process;
  std::string host;
};

void declare(auto& field, Of<Whereabouts> auto& there) {
  field("address", there.address);
  field("port", there.port, record::whole(1, std::numeric_limits<std::uint16_t>::max()));
  field("token", there.token, HexRule<Digest>());
  field("machine", there.process.host);
  field("network", there.process.network_namespace);
  field("host", there.host, ToldText());
}

class Introduction {
 public:
  Introduction(Meeting& meeting, const std::string& topic, const std::string& address) : meeting_(meeting), topic_(topic) {
    FileDescriptor listener = listen_on(address, 0);
    const Whereabouts own{address, port_of(listener), random_digest(), p2p::this_process(), host_name()};
    std::vector<FileDescriptor> listeners;
    listeners.push_back(std::move(listener));
    reception_.emplace(std::move(listeners), Credentials{Secret(own.token), purpose(meeting.rank())}, meeting.members().size());
    const std::vector<Whereabouts> all = meeting.gather(topic, own);
    for (std::size_t i = 0; i < all.size(); ++i) check_reach(own, all[i], meeting.members()[i]);
    sockets_.resize(all.size());
    bool is_later = false;  // in the list than this rank
    for (std::size_t i = 0; i < all.size(); ++i) {
      const int member = meeting.members()[i];
      if (member == meeting.rank()) {
        is_later = true;
      } else if (is_later) {
        later_[member] = i;
      } else {
        callers_.try_emplace(i, all[i].address, all[i].port, Credentials{Secret(all[i].token), purpose(member)},
                             static_cast<std::uint32_t>(meeting.rank()));
      }
    }
  }

  std::vector<FileDescriptor> make() {
    const auto deadline = Clock::now() + meeting_.timeout();
    while (!callers_.empty() || !uncalled().empty()) {
      meeting_.check();
      if (Clock::now() >= deadline) throw_missing();
      wait(deadline);
      for (Proven& proven : reception_->serve()) {
        const auto member = later_.find(static_cast<int>(proven.number));
        if (member == later_.end()) continue;
        // A caller that calls again has not learned that its first call succeeded.
        sockets_[member->second] = std::move(proven.socket);
      }
      for (auto entry = callers_.begin(); entry != callers_.end();) {
        auto& [place, caller] = *entry;
        const bool done = caller.advance();
        if (done) sockets_[place] = caller.take().socket;
        entry = done ? callers_.erase(entry) : std::next(entry);
      }
    }
    return std::move(sockets_);
  }

 private:
  std::string purpose(int listener) const {
    return "introduction to rank " + std::to_string(listener) + ", " + meeting_.key(topic_, listener);
  }

  static void check_reach(const Whereabouts& own, const Whereabouts& other, int rank) {
    if (own.process.shares_network_with(other.process)) return;
    for (const Whereabouts* end : {&own, &other}) {
      if (!is_loopback(end->address)) continue;
      const bool same_machine = own.process.host == other.process.host;
      throw ConfigError(
          {{"comm.interface", end->address,
            "is a loopback address, which only ranks of the same host reach, but rank " + std::to_string(rank) + " is " +
                (same_machine ? "in another network namespace (container) of this one" : "on another host, " + other.host) +
                ". Set what is right on all hosts: the name of a network interface (comm.interface=eth0) or a subnet "
                "(comm.interface=10.1.0.0/16). Here are " +
                interfaces_text(),
            "", 0}});
    }
  }

  std::vector<int> uncalled() const {
    std::vector<int> members;
    for (const auto& [member, place] : later_) {
      if (!sockets_[place]) members.push_back(member);
    }
    return members;
  }

  void wait(Clock::time_point deadline) const {
    auto wake = std::min(deadline, Clock::now() + longest_nap);
    std::vector<pollfd> events = {{reception_->descriptor(), POLLIN, 0}};
    for (const auto& [place, caller] : callers_) {
      wake = std::min(wake, caller.wake());
      if (caller.descriptor() >= 0) events.push_back({caller.descriptor(), caller.awaited(), 0});
    }
    const auto left = std::chrono::ceil<milliseconds>(wake - Clock::now());
    ::poll(events.data(), events.size(), static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
  }

  [[noreturn]] void throw_missing() const {
    std::string text;
    for (const int member : uncalled()) {
      text += (text.empty() ? "" : "; ") + ("rank " + std::to_string(member)) + " did not call";
    }
    for (const auto& [place, caller] : callers_) {
      text += (text.empty() ? "" : "; ") + ("rank " + std::to_string(meeting_.members()[place])) + " was not reached at " +
              caller.problem();
    }
    const std::uint64_t strangers = reception_->strangers();
    throw CommError("no connection within " + std::to_string(meeting_.timeout().count()) + " ms: " + text +
                    (strangers == 0 ? "" : " (" + std::to_string(strangers) + " connections from elsewhere were dropped)"));
  }

  Meeting& meeting_;
  const std::string topic_;
  std::optional<Reception> reception_;
  std::map<int, std::size_t> later_;       // members that are to call; their places
  std::map<std::size_t, Caller> callers_;  // by place
  std::vector<FileDescriptor> sockets_;
};

}  // namespace

std::vector<FileDescriptor> introduce(Meeting& meeting, const std::string& topic, const std::string& address) {
  return Introduction(meeting, topic, address).make();
}

}  // namespace plait::comm
