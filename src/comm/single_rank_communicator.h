// A group of one rank, on any device: its collectives are copies, or nothing.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/group.h"

namespace plait::comm {

std::unique_ptr<Communicator> make_single_rank_communicator(const GroupSpec& spec);

}  // namespace plait::comm
