// Reads from NCCL's log (NCCL_DEBUG=INFO) how a communicator was connected, because no call of NCCL tells by which ways it
// goes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "comm/communicator.h"

namespace plait::comm {

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
