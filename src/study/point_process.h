// Runs a point in a process tree of its own, with a deadline.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "study/point.h"

namespace plait::study {

struct ProcessSpec {
  std::filesystem::path program = "/proc/self/exe";  // this one
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> environment = {};  // added to this process's, or replacing it
  std::filesystem::path output;                                       // its standard output; created or emptied
  std::filesystem::path log;                                          // its standard error; created or emptied
  std::chrono::milliseconds deadline{0};
  // Time from SIGTERM to SIGKILL, for a program that has to end processes of other hosts; 0: SIGKILL at once.
  std::chrono::milliseconds grace{0};
};

struct ProcessEnd {
  bool timed_out = false;
  bool interrupted = false;       // `stop` said so, and the tree was ended, or had already been by the sender of the stop
  int status = 0;                 // from waitpid
  bool kernel_ended_one = false;  // for lack of memory, in this process's cgroup
  double seconds = 0;
  bool ok() const;
};

// Starts it and waits for its end. Remaining processes of the tree are then killed, even those in a new session: this process
// becomes the parent of orphans. The tree dies with this process, however that ends (with `grace`, by SIGTERM). `stop` is asked
// every few milliseconds. CommError if it cannot be started.
ProcessEnd run_process(const ProcessSpec& spec, const std::function<bool()>& stop);

// The outcome of a round whose process did not end well, and the line that gives the reason: the program's first error, or how
// the process ended.
struct Verdict {
  Outcome outcome = Outcome::failed;
  std::string message;
};
Verdict verdict_of(const ProcessEnd& end, const std::string& log, std::chrono::milliseconds deadline);

}  // namespace plait::study
