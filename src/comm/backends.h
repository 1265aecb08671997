// The libraries behind communicators: Gloo's TCP transport for the host device, NCCL for CUDA devices.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"

namespace plait::comm {

class Meeting;

// The group has at least two ranks. Every rank calls it from its own thread or process.
std::unique_ptr<Communicator> make_gloo_communicator(const GroupSpec& spec, Meeting& meeting);

std::string gloo_backend_name();  // "Gloo 0.5.0"

class Meeting;

// The group has at least two ranks, one GPU each. Every rank calls it from its own thread or process.
std::unique_ptr<Communicator> make_nccl_communicator(const GroupSpec& spec, Meeting& meeting);

std::string nccl_backend_name();  // "NCCL 2.28.9"

}  // namespace plait::comm
