// What NCCL reads from the environment, and only once in a process: it has to be there before the first communicator.
#pragma once

#include <string>

#include "core/choices.h"

namespace plait::comm {

// For ranks on GPUs, before the first communicator of the process and while it has no other thread that reads the environment.
// Without peer access NCCL_P2P_DISABLE and NCCL_NVLS_ENABLE say so, whatever they said. Unless the user has set
// NCCL_GRAPH_REGISTER, it becomes 0: calls in CUDA graphs (runtime/step_graph.h) have the bits of others. Unless the user has
// set NCCL_DEBUG or NCCL_DEBUG_FILE, NCCL's log of making communicators is kept in memory of this process, where NcclLog reads
// it; it goes with the process. ConfigError where an earlier call in this process chose another access.
void settle_nccl_environment(PeerAccessUse access);

// Whether the variable holds what settle_nccl_environment() set, and not the user.
bool is_set_for_nccl(const std::string& variable);

}  // namespace plait::comm
