// What the system says of a process that is another rank.
#pragma once

#include <cstdint>
#include <string>

namespace plait::launch {

enum class ProcessState {
  runs,       // or sleeps
  stopped,    // by a signal, or by a debugger
  in_kernel,  // waits in the kernel and cannot be interrupted (a disk or network file system that does not answer, mostly)
  ended,      // gone, or a zombie
};

// `start`: when the process began, as comm::p2p::ProcessIdentity has it; a process that began at another time is another one.
// Empty: not looked at.
ProcessState process_state(std::int64_t process, const std::string& start = {});

// To go behind "its process 4711 ".
std::string to_string(ProcessState state);

}  // namespace plait::launch
