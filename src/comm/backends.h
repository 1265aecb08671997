// Used by implementations of Communicator alone: the preconditions of its calls, and the libraries behind it, Gloo's TCP
// transport for the host device and NCCL for CUDA devices.
#pragma once

#include <memory>
#include <source_location>
#include <string>

#include "comm/communicator.h"
#include "core/view.h"

namespace plait::comm {

// The preconditions of Communicator's calls, which every backend checks here. Each throws InternalError naming the caller.
using Where = std::source_location;

void check_reducible(const View& data, Where where = Where::current());
// `whole` holds `size` slices as large as `part`, of the same type.
void check_slices(const View& whole, const View& part, int size, Where where = Where::current());
// `peer` is another rank of the group, and the group was made for messages (`allowed` is GroupSpec::point_to_point). In other
// groups NCCL would block the host in the first message until the peer arrives, so no backend allows messages there.
void check_peer(int peer, int rank, int size, bool allowed, Where where = Where::current());
// `send` and `receive` have the same type and size, and consist of `size` equal slices.
void check_all_to_all(const View& send, const View& receive, int size, Where where = Where::current());

class Meeting;

// The group has at least two ranks, with NCCL one GPU each. Every rank calls it from its own thread or process.
std::unique_ptr<Communicator> make_gloo_communicator(const GroupSpec& spec, Meeting& meeting);
std::unique_ptr<Communicator> make_nccl_communicator(const GroupSpec& spec, Meeting& meeting);

std::string gloo_backend_name();  // "Gloo 0.5.0"
std::string nccl_backend_name();  // "NCCL 2.28.9"

}  // namespace plait::comm
