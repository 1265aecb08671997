// A process tree of its own, with a deadline.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "study/round.h"

namespace plait::study {

struct ProcessSpec {
  std::vector<std::string> argv;  // of this program (/proc/self/exe)
  std::filesystem::path output;   // its standard output; made new, or emptied
  std::filesystem::path log;      // its standard error, likewise
  std::chrono::milliseconds deadline{0};
};

struct ProcessEnd {
  bool timed_out = false;
  bool interrupted = false;       // `stop` said so, and the tree was ended
  int status = 0;                 // as waitpid tells
  bool kernel_ended_one = false;  // for want of memory, of this process's group of processes (cgroup)
  double seconds = 0;
  bool ok() const;
};

// Starts it and waits for its end. Whatever is left of the tree then, also what has made itself a session of its own, is
// killed: this process becomes the one that orphans go to. The tree dies with this process, however that ends. `stop` is asked
// every few milliseconds. CommError if it cannot be started.
ProcessEnd run_process(const ProcessSpec& spec, const std::function<bool()>& stop);

// What a round came to, of a process that did not end well, and the line that says why: the program's first error, or how the
// process ended.
struct Verdict {
  Outcome outcome = Outcome::failed;
  std::string message;
};
Verdict verdict_of(const ProcessEnd& end, const std::string& log, std::chrono::milliseconds deadline);

}  // namespace plait::study
