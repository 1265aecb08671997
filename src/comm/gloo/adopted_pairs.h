// Gloo's TCP transport over connections that plait made itself.
//
// Gloo's own pairs (tcp::Pair, here of 2022) each listen at a port of their own and take the first connection for the peer: no
// byte is exchanged to tell who it is. A process that polls /proc/net/tcp while a job starts is therefore taken for a rank, and
// the rank is refused. Three ways were weighed:
//
//   * Gloo's TLS transport, with an authority made for each job. Debian's library is built without it; it would encrypt the
//     ranks'
//     exchanges at the price of some cores; and a pair still listens for one connection: a stranger who stays silent there, or
//     fails
//     the handshake, ends the start instead of being taken for a peer.
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

#include <chrono>
#include <memory>
#include <vector>

#include "core/file.h"

namespace plait::comm {

// A context whose pairs are `sockets`, by rank; no socket for the rank itself. Must be called on the device's own thread
// (LoopThread): while the call runs, that thread takes nothing from the port that Gloo opens, for some microseconds, when it
// makes a pair.
std::shared_ptr<gloo::transport::Context> adopt_pairs(const std::shared_ptr<gloo::transport::Device>& device, int rank,
                                                      std::vector<FileDescriptor> sockets, std::chrono::milliseconds timeout);

}  // namespace plait::comm
