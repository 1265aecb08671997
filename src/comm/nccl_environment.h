// Sets the environment variables that NCCL reads, once per process: they must be set before the first communicator.
#pragma once

#include <string>

#include "core/choices.h"

namespace plait::comm {

// For ranks on GPUs; call it before the first communicator of the process and while no other thread reads the environment.
// Without peer access it sets NCCL_P2P_DISABLE and NCCL_NVLS_ENABLE, replacing earlier values. Unless the user has set
// NCCL_GRAPH_REGISTER, it becomes 0, so that calls in CUDA graphs (runtime/cuda_graph.h) have the bits of other calls. Unless
// the user has set NCCL_DEBUG or NCCL_DEBUG_FILE, NCCL's log of making communicators is kept in this process's memory, where
// NcclLog reads it. ConfigError if an earlier call in this process chose another access.
void settle_nccl_environment(PeerAccessUse access);

// True if settle_nccl_environment() set the variable, false if the user did.
bool is_set_for_nccl(const std::string& variable);

}  // namespace plait::comm
