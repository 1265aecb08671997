#include "launch/process_state.h"

#include <fstream>
#include <sstream>

namespace plait::launch {

ProcessState process_state(std::int64_t process, const std::string& start) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  // The fields after the program's name, which is in parentheses and may hold anything: field 3, the state, to field 22, the
  // start.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return ProcessState::ended;
  std::istringstream fields(text.substr(name_end + 1));
  std::string state, field;
  fields >> state;
  for (int number = 4; number <= 22; ++number) fields >> field;
  if (!start.empty() && field != start) return ProcessState::ended;
  if (state == "T" || state == "t") return ProcessState::stopped;
  if (state == "Z" || state == "X") return ProcessState::ended;
  return state == "D" ? ProcessState::in_kernel : ProcessState::runs;
}

std::string to_string(ProcessState state) {
  switch (state) {
    case ProcessState::runs: return "is alive, but hangs as a whole or gets no processor";
    case ProcessState::stopped: return "is stopped (SIGSTOP, or a debugger)";
    case ProcessState::in_kernel: return "waits in the kernel (state D: often a disk or a network file system)";
    case ProcessState::ended: return "has ended";
  }
  return "";
}

}  // namespace plait::launch
