#include "study/point_process.h"

#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "core/error.h"
#include "core/file.h"

namespace plait::study {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr std::chrono::milliseconds look_interval{10};
// When a whole job ends (scancel, a requeue), its processes are signalled one after the other, this one maybe last.
constexpr std::chrono::milliseconds stop_follows{500};
constexpr std::chrono::seconds killing_time{30};  // processes still there wait in the kernel for a device

// Every process below this one.
std::vector<pid_t> descendants() {
  std::multimap<pid_t, pid_t> children;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    if (process <= 0) continue;
    std::ifstream file(entry.path() / "stat");
    std::string text;
    std::getline(file, text);
    const std::size_t name_ends = text.rfind(')');
    if (name_ends == std::string::npos) continue;
    std::istringstream rest(text.substr(name_ends + 1));
    std::string state;
    pid_t parent = 0;
    if (rest >> state >> parent) children.emplace(parent, process);
  }
  std::vector<pid_t> found{::getpid()};
  for (std::size_t n = 0; n < found.size(); ++n) {
    const auto [first, last] = children.equal_range(found[n]);
    for (auto child = first; child != last; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

// Only processes of the tree are below this one while a point runs. A process that loses its parent becomes this process's
// child, so the tree has gone when there is none left to wait for.
void kill_tree() {
  const auto deadline = Clock::now() + killing_time;
  for (;;) {
    for (const pid_t process : descendants()) ::kill(process, SIGKILL);
    pid_t ended = 0;
    do ended = ::waitpid(-1, nullptr, WNOHANG);
    while (ended > 0);
    if (ended < 0 || Clock::now() >= deadline) return;
    std::this_thread::sleep_for(look_interval);
  }
}

// The number of processes that the kernel has ended in this process's cgroup for lack of memory; 0 if unknown.
long memory_kills() {
  std::ifstream own("/proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {
    if (!line.starts_with("0::")) continue;
    std::ifstream events("/sys/fs/cgroup" + line.substr(3) + "/memory.events");
    std::string key;
    for (long count = 0; events >> key >> count;) {
      if (key == "oom_kill") return count;
    }
  }
  return 0;
}

int open_new(const fs::path& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) throw ConfigError("cannot create " + path.string() + ": " + errno_text());
  return file;
}

// The argument array for exec; `words` outlives it.
std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_of(const ProcessSpec& spec) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto is_given = [&](const auto& variable) { return text.starts_with(variable.first + "="); };
    if (std::ranges::none_of(spec.environment, is_given)) entries.push_back(text);
  }
  for (const auto& [name, value] : spec.environment) entries.push_back(name + "=" + value);
  return entries;
}

pid_t start(const ProcessSpec& spec) {
  std::vector<std::string> words = spec.argv, variables = environment_of(spec);
  const std::vector<char*> arguments = pointers_to(words), environment = pointers_to(variables);
  const int end_with_parent = spec.grace.count() > 0 ? SIGTERM : SIGKILL;
  const FileDescriptor output(open_new(spec.output)), log(open_new(spec.log)), input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw CommError("cannot start a process: " + errno_text());
  if (child > 0) return child;
  // Only calls that are allowed between fork and exec in a program with threads.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, end_with_parent);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_DFL);
  if (::getppid() == parent && ::dup2(input.get(), STDIN_FILENO) >= 0 && ::dup2(output.get(), STDOUT_FILENO) >= 0 &&
      ::dup2(log.get(), STDERR_FILENO) >= 0) {
    ::execve(spec.program.c_str(), arguments.data(), environment.data());
  }
  ::_exit(127);
}

// Waits up to `patience` for its end.
bool has_ended(pid_t child, int& status, std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(look_interval);
  }
  return true;
}

// The first line that the program itself reported as an error; else the last line.
std::string telling_line(const std::string& log) {
  constexpr std::string_view mark = "plait: ";
  constexpr std::size_t longest = 2000;
  std::istringstream lines(log);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(mark)) {
      std::string next;  // "1 problem in the input:" means nothing without it
      if (line.ends_with(':') && std::getline(lines, next)) {
        if (const auto at = next.find_first_not_of(" \t"); at != std::string::npos) line += " " + next.substr(at);
      }
      return line.substr(mark.size(), longest);
    }
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  }
  return last.substr(0, longest);
}

}  // namespace

bool ProcessEnd::ok() const { return !timed_out && !interrupted && WIFEXITED(status) && WEXITSTATUS(status) == 0; }

ProcessEnd run_process(const ProcessSpec& spec, const std::function<bool()>& stop) {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) throw CommError("prctl(PR_SET_CHILD_SUBREAPER): " + errno_text());
  ProcessEnd end;
  const long killed_before = memory_kills();
  const auto began = Clock::now();
  const pid_t child = start(spec);
  for (;;) {
    const pid_t ended = ::waitpid(child, &end.status, WNOHANG);
    if (ended == child) break;
    require(ended == 0 || errno == EINTR, "waitpid does not know the process that was started");
    end.interrupted = stop();
    end.timed_out = !end.interrupted && Clock::now() - began >= spec.deadline;
    if (end.interrupted || end.timed_out) {
      if (spec.grace.count() > 0) {
        ::kill(child, SIGTERM);
        if (has_ended(child, end.status, spec.grace)) break;
      }
      ::kill(child, SIGKILL);
      has_ended(child, end.status, killing_time);
      break;
    }
    std::this_thread::sleep_for(look_interval);
  }
  end.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  for (const auto until = Clock::now() + stop_follows;
       !end.ok() && !end.timed_out && !end.interrupted && Clock::now() < until;) {
    std::this_thread::sleep_for(look_interval);
    end.interrupted = stop();
  }
  kill_tree();
  end.kernel_ended_one = memory_kills() > killed_before;
  return end;
}

Verdict verdict_of(const ProcessEnd& end, const std::string& log, std::chrono::milliseconds deadline) {
  const std::string line = telling_line(log);
  if (end.timed_out) {
    return {Outcome::timed_out, fmt::format("ran longer than {:g} s (study.budget.point_timeout_s){}{}",
                                            std::chrono::duration<double>(deadline).count(), line.empty() ? "" : ": ", line)};
  }
  std::string how = fmt::format("exited with status {}", WEXITSTATUS(end.status));
  if (WIFSIGNALED(end.status))
    how = fmt::format("was killed by signal {} ({})", WTERMSIG(end.status), ::strsignal(WTERMSIG(end.status)));
  if (end.kernel_ended_one) return {Outcome::out_of_memory, "the kernel ended it for want of memory: it " + how};
  std::string lower = log;
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  // Words of plait (OutOfMemoryError), of CUDA and its libraries, of the C++ and the C library, of Slurm.
  for (const char* words :
       {"out of memory", "cuda_error_out_of_memory", "bad_alloc", "cannot allocate memory", "oom_kill event"}) {
    if (lower.find(words) != std::string::npos) return {Outcome::out_of_memory, line.empty() ? how : line};
  }
  // A line alone would not show that the process was killed from outside.
  if (line.empty() || WIFSIGNALED(end.status)) return {Outcome::failed, line.empty() ? how : how + ": " + line};
  return {Outcome::failed, line};
}

}  // namespace plait::study
