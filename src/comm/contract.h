// The preconditions of Communicator's calls, which every backend checks here. Each throws InternalError naming the caller.
#pragma once

#include <source_location>

#include "core/view.h"

namespace plait::comm {

using Where = std::source_location;

void check_reducible(const View& data, Where where = Where::current());
// `whole` holds `size` slices as large as `part`, of the same type.
void check_slices(const View& whole, const View& part, int size, Where where = Where::current());
// `peer` is another rank of the group, and the group was made for messages (`allowed` is GroupSpec::point_to_point). In other
// groups NCCL would block the host in the first message until the peer arrives, so no backend allows messages there.
void check_peer(int peer, int rank, int size, bool allowed, Where where = Where::current());
// `send` and `receive` have the same type and size, and consist of `size` equal slices.
void check_all_to_all(const View& send, const View& receive, int size, Where where = Where::current());

}  // namespace plait::comm
