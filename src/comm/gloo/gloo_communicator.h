// Communicator for the host device, over Gloo's TCP transport.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/group.h"

namespace plait::comm {

class Meeting;

// The group has at least two ranks. Every rank calls it from its own thread or process.
std::unique_ptr<Communicator> make_gloo_communicator(const GroupSpec& spec, Meeting& meeting);

std::string gloo_backend_name();  // "Gloo 0.5.0"

}  // namespace plait::comm
