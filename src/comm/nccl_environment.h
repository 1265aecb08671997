// NCCL's environment variables, as a process sets them, and its log, which reports how a communicator was connected.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "comm/communicator.h"
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

// NCCL's log (NCCL_DEBUG=INFO) is read to learn how a communicator was connected, because no call of NCCL reports the paths.

// Identifies the lines of one rank by its process and GPU. The ranks of a process write to one log.
struct NcclLogLines {
  std::int64_t process = 0;
  int gpu = 0;   // its number in the process
  int rank = 0;  // of the group
  int size = 1;
};

// The paths that the lines report; `unknown` says so if they name no way from the rank. Lines that are not understood are
// skipped: the format is not part of NCCL's interface, and a line may be cut.
Paths read_nccl_log(std::string_view text, const NcclLogLines& whose);

// The log of this process, if it can be read: a file named by NCCL_DEBUG_FILE, at a level that reports connections.
class NcclLog {
 public:
  NcclLog();                                                     // from the environment
  const std::string& why_unread() const { return why_unread_; }  // "": it is readable
  std::uint64_t size() const;                                    // bytes by now; 0 before NCCL has made the file
  std::string since(std::uint64_t offset) const;                 // at most the last 64 MB
 private:
  std::string path_, why_unread_;
};

}  // namespace plait::comm
