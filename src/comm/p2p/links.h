// The two kinds of link. Private to p2p: everything else uses comm/p2p/link.h.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/p2p/link.h"
#include "comm/p2p/mailbox.h"

namespace plait::comm::p2p {

struct LinkEnd {
  End end = End::sender;
  Device device;
  std::string label;  // for errors: "link 0 -> 1"
  std::shared_ptr<SharedByLinks> shared = {};
};

struct MailboxLinkOptions {
  bool by_kernel = false;  // this end copies with an SM kernel
  bool announce = true;
  std::vector<Place> places = {};  // those of the memory, if messages arrive in place
  // Called when this end has released the peer's memory. Tells the peer, and waits until the peer has released this end's, for
  // the given time at most. For memory that must not be freed earlier (IPC); empty if the system counts the users of the
  // memory.
  std::function<void(std::chrono::milliseconds)> goodbye;
};
std::unique_ptr<Link> make_mailbox_link(const LinkEnd& end, MailboxMemory memory, const MailboxLinkOptions& options);

// Uses send and receive of a group of two, in which rank 0 sends. `beacon`: a mailbox without slots, for announcements; null if
// the link does not announce.
std::unique_ptr<Link> make_communicator_link(const LinkEnd& end, std::unique_ptr<Communicator> pair,
                                             std::unique_ptr<Mailbox> beacon);

}  // namespace plait::comm::p2p
