// What NCCL writes to its log while it connects a communicator (NCCL_DEBUG=INFO): no call of its tells by which ways it goes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "comm/paths.h"

namespace plait::comm {

// The lines of one rank: those of its process and GPU. The ranks of a process write to one log.
struct NcclLogLines {
  std::int64_t process = 0;
  int gpu = 0;   // its number in the process
  int rank = 0;  // of the group
  int size = 1;
};

// What the lines say; `unknown` where they name no way from the rank. Lines that are not understood are passed over: the form
// is not NCCL's interface, and a line may be cut.
Paths read_nccl_log(std::string_view text, const NcclLogLines& whose);

// The log of this process, where it can be read: a file that NCCL_DEBUG_FILE names, at a level that tells of connections.
class NcclLog {
 public:
  NcclLog();                                                     // as the environment says
  const std::string& why_unread() const { return why_unread_; }  // "": it can be read
  std::uint64_t size() const;                                    // bytes by now; 0 before NCCL has made the file
  std::string since(std::uint64_t offset) const;                 // at most the last 64 MB
 private:
  std::string path_, why_unread_;
};

}  // namespace plait::comm
