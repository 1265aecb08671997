// Proven TCP connections among the members of a meeting.
#pragma once

#include <string>
#include <vector>

#include "comm/meeting.h"
#include "core/file.h"

namespace plait::comm {

// Connects every pair of members, and returns the sockets in the order of the members (none at this rank's own place). They do
// not block; nothing has been read from them. Collective; `topic` is used once in the meeting.
//
// Each member listens on `address` (a number, of this host) at a free port and tells the others, in the meeting, where and with
// which random token; of two members the later in the list calls. A connection counts only once the caller has proved that it
// knows the token (comm/tcp/proof.h), so a stranger who finds the port is dropped, no matter what it sends, and the member
// whose place it would have taken gets in. The listeners are closed on return.
//
// CommError naming all members that did not connect within the meeting's time limit (it also mentions the number of strangers,
// who are not the reason), or at once when the rendezvous is aborted. ConfigError if `address` is loopback and a member is on
// another host, or in another network namespace.
std::vector<FileDescriptor> introduce(Meeting& meeting, const std::string& topic, const std::string& address);

}  // namespace plait::comm
