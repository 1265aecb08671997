// Chooses and builds a communicator.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/group.h"
#include "comm/rendezvous.h"

namespace plait::comm {

// Collective over the group. All ranks make their groups in the same order. CommError on failure or time-out. Ranks that share
// more than one group must also destroy them in the same order, since NCCL then waits for peers in other processes.
std::unique_ptr<Communicator> make_communicator(const GroupSpec& spec, Rendezvous& store);

// A function that makes communicators as make_communicator does.
using CommunicatorMaker = std::function<std::shared_ptr<Communicator>(const GroupSpec&, Rendezvous&)>;

// "NCCL 2.28.9" or "Gloo 0.5.0".
std::string backend_name(DeviceKind kind);

}  // namespace plait::comm
