// A process tree of its own, with a deadline.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "study/round.h"

namespace plait::study {

struct ProcessSpec {
  std::filesystem::path program = "/proc/self/exe";  // this one
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> environment = {};  // besides this process's, and in place of it
  std::filesystem::path output;                                       // its standard output; made new, or emptied
  std::filesystem::path log;                                          // its standard error, likewise
  std::chrono::milliseconds deadline{0};
  // From SIGTERM to SIGKILL, for what has to end processes of other hosts; 0: SIGKILL at once.
  std::chrono::milliseconds grace{0};
};

struct ProcessEnd {
  bool timed_out = false;
  bool interrupted = false;       // `stop` said so, and the tree was ended, or had been by whoever wants the stop
  int status = 0;                 // as waitpid tells
  bool kernel_ended_one = false;  // for want of memory, of this process's group of processes (cgroup)
  double seconds = 0;
  bool ok() const;
};

// Starts it and waits for its end. Whatever is left of the tree then, also what has made itself a session of its own, is
// killed: this process becomes the one that orphans go to. The tree dies with this process, however that ends (with `grace`, by
// SIGTERM). `stop` is asked every few milliseconds. CommError if it cannot be started.
ProcessEnd run_process(const ProcessSpec& spec, const std::function<bool()>& stop);

// What a round came to, of a process that did not end well, and the line that says why: the program's first error, or how the
// process ended.
struct Verdict {
  Outcome outcome = Outcome::failed;
  std::string message;
};
Verdict verdict_of(const ProcessEnd& end, const std::string& log, std::chrono::milliseconds deadline);

}  // namespace plait::study
