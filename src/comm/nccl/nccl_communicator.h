// Communicator for CUDA devices, over NCCL.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/group.h"

namespace plait::comm {

class Meeting;

// The group has at least two ranks, one GPU each. Every rank calls it from its own thread or process.
std::unique_ptr<Communicator> make_nccl_communicator(const GroupSpec& spec, Meeting& meeting);

std::string nccl_backend_name();  // "NCCL 2.28.9"

}  // namespace plait::comm
