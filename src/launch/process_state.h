// The state of another rank's process, as the system sees it.
#pragma once

#include <cstdint>
#include <string>

namespace plait::launch {

enum class ProcessState {
  runs,       // or sleeps
  stopped,    // by a signal, or by a debugger
  in_kernel,  // waits in the kernel and cannot be interrupted (usually a disk or network file system that does not answer)
  ended,      // gone, or a zombie
};

// `start`: when the process began, as in comm::p2p::ProcessIdentity; a process that began at another time is a different one.
// Empty: not checked.
ProcessState process_state(std::int64_t process, const std::string& start = {});

// Completes a sentence that begins "its process 4711 ".
std::string to_string(ProcessState state);

}  // namespace plait::launch
