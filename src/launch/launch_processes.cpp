#include "launch/launch_processes.h"

#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "core/error.h"
#include "launch/process_state.h"
#include "launch/watchdog.h"

namespace plait::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How often the children are looked after, and how long a failure may take to show on the ranks that it hits: the report
// should name the cause, which is not always the first that the parent sees.
constexpr milliseconds poll_interval{20};
constexpr milliseconds settle_time{200};
// A killed rank says nothing itself; the others get this long to say what they waited for.
constexpr milliseconds last_words_time{3'000};
constexpr std::chrono::seconds interrupt_grace{60};  // for a clean end, with a checkpoint perhaps

// Collects SIGINT, SIGTERM and SIGHUP of the process while it lives. They are blocked in the main thread and read from a
// file; a signal that the kernel gives to another thread (a BLAS worker, say) is sent on to the main thread.
class SignalWatch {
 public:
  SignalWatch() {
    require(::gettid() == ::getpid(), "launch() in mode processes must be called from the main thread");
    sigemptyset(&watched_);
    for (const int signal : signals) sigaddset(&watched_, signal);
    pthread_sigmask(SIG_BLOCK, &watched_, &previous_mask_);
    struct sigaction action{};
    action.sa_handler = [](int signal) {
      const int saved = errno;
      if (::gettid() != ::getpid()) ::tgkill(::getpid(), ::getpid(), signal);
      errno = saved;
    };
    action.sa_flags = SA_RESTART;
    for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &action, &previous_actions_[i]);
    descriptor_ = ::signalfd(-1, &watched_, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  ~SignalWatch() {
    if (descriptor_ >= 0) ::close(descriptor_);
    for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &previous_actions_[i], nullptr);
    pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
  }

  // Waits for a signal until `time` has passed; 0 if none came.
  int wait_for(milliseconds time) {
    pollfd waited{descriptor_, POLLIN, 0};
    ::poll(&waited, 1, static_cast<int>(time.count()));
    signalfd_siginfo info{};
    return ::read(descriptor_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

  const sigset_t& previous_mask() const { return previous_mask_; }

 private:
  static constexpr std::array<int, 3> signals = {SIGINT, SIGTERM, SIGHUP};
  sigset_t watched_{};
  sigset_t previous_mask_{};
  std::array<struct sigaction, 3> previous_actions_{};
  int descriptor_ = -1;
};

struct Child {
  int rank = 0;
  pid_t process = 0;
  bool running = true;
  int status = 0;            // as waitpid tells, once it has ended
  bool was_stopped = false;  // when it was told to end, so that it could not

  bool failed() const { return !running && !(WIFEXITED(status) && WEXITSTATUS(status) == 0); }
  bool killed() const { return !running && WIFSIGNALED(status); }
  std::string describe() const {
    return "rank " + std::to_string(rank) + " (process " + std::to_string(process) + ") " + how_it_ended();
  }
  std::string how_it_ended() const {
    if (was_stopped) return to_string(ProcessState::stopped) + " and has been killed";
    if (!killed()) return "exited with status " + std::to_string(WEXITSTATUS(status));
    const int signal = WTERMSIG(status);
    return "was killed by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
  }
};

// The children that run; leaving its scope kills those that still do.
class Children {
 public:
  Children() = default;
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children() {
    send(SIGKILL);
    for (Child& child : children_) {
      while (child.running && ::waitpid(child.process, &child.status, 0) < 0 && errno == EINTR) continue;
    }
  }

  // `inherited`: a descriptor that the child keeps, although it is close-on-exec.
  void start(int rank, std::vector<std::string> arguments, std::vector<std::string> environment, const sigset_t& signal_mask,
             int inherited) {
    const auto pointers = [](std::vector<std::string>& strings) {
      std::vector<char*> result;
      for (std::string& text : strings) result.push_back(text.data());
      result.push_back(nullptr);
      return result;
    };
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    // A process group of its own: a Ctrl-C on the terminal then reaches a child once, from the parent.
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &signal_mask);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, inherited, inherited);  // onto itself: stays open
    pid_t process = 0;
    const int error = ::posix_spawn(&process, "/proc/self/exe", &files, &attributes, pointers(arguments).data(),
                                    pointers(environment).data());
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (error != 0) throw CommError("cannot start rank " + std::to_string(rank) + " as a process: " + std::strerror(error));
    children_.push_back({rank, process});
  }

  void send(int signal) const {
    for (const Child& child : children_) {
      if (child.running) ::kill(child.process, signal);
    }
  }

  // Tells all to end. One that is stopped would not hear of it before it is let go on, which nobody may ever do.
  void end() {
    for (Child& child : children_) {
      child.was_stopped = child.running && process_state(child.process) == ProcessState::stopped;
      if (child.running) ::kill(child.process, child.was_stopped ? SIGKILL : SIGTERM);
    }
  }

  void reap() {
    for (Child& child : children_) {
      if (child.running && ::waitpid(child.process, &child.status, WNOHANG) == child.process) child.running = false;
    }
  }

  bool any_running() const {
    return std::any_of(children_.begin(), children_.end(), [](const Child& child) { return child.running; });
  }

  // Those that failed so far, the likeliest causes first: killed ones, then those with another status than 3, which is also
  // how a rank ends that has lost its peer, and those that were stopped, which is how to lose it.
  std::vector<Child> failures() const {
    std::vector<Child> failed;
    std::copy_if(children_.begin(), children_.end(), std::back_inserter(failed),
                 [](const Child& child) { return child.failed(); });
    const auto place = [](const Child& child) {
      if (child.was_stopped) return 2;
      return child.killed() ? 0 : WEXITSTATUS(child.status) != 3 ? 1 : 3;
    };
    std::stable_sort(failed.begin(), failed.end(), [&](const Child& a, const Child& b) { return place(a) < place(b); });
    return failed;
  }

  // Of `before`, and those that were stopped: others that failed later did so because they were told to end.
  std::vector<Child> failures_with_stopped(const std::vector<Child>& before) const {
    std::vector<Child> all = failures();
    std::erase_if(all, [&](const Child& child) {
      const auto is_it = [&](const Child& other) { return other.rank == child.rank; };
      return !child.was_stopped && std::none_of(before.begin(), before.end(), is_it);
    });
    return all;
  }

 private:
  std::vector<Child> children_;
};

std::vector<std::string> child_environment(int rank, int size, int rendezvous) {
  std::vector<std::string> result = {std::string(rank_variable) + "=" + std::to_string(rank),
                                     std::string(size_variable) + "=" + std::to_string(size),
                                     std::string(rendezvous_variable) + "=" + std::to_string(rendezvous),
                                     std::string(launcher_variable) + "=" + std::to_string(::getpid())};
  const std::size_t own = result.size();
  for (char** variable = environ; *variable; ++variable) {
    const std::string text = *variable;
    const std::string name = text.substr(0, text.find('=') + 1);
    if (std::none_of(result.begin(), result.begin() + static_cast<std::ptrdiff_t>(own),
                     [&](const std::string& ours) { return ours.starts_with(name); })) {
      result.push_back(text);
    }
  }
  return result;
}

// Statuses 3 are mostly the others', who lost the first one: they are not worth a place each.
int report(const std::vector<Child>& failures) {
  std::string text;
  std::vector<int> lost_it;
  for (const Child& child : failures) {
    const bool first = text.empty();
    if (!first && !child.killed() && WEXITSTATUS(child.status) == 3) {
      lost_it.push_back(child.rank);
    } else {
      text += (first ? "" : "; ") + child.describe();
    }
  }
  if (!lost_it.empty())
    text += fmt::format("; rank{} {} exited with status 3", lost_it.size() > 1 ? "s" : "", fmt::join(lost_it, ", "));
  const int status = WEXITSTATUS(failures.front().status);
  if (failures.front().killed() || status > 3) throw CommError(text);
  fmt::print(stderr, "plait: {}\n", text);
  return status;
}

}  // namespace

int launch_processes(const LaunchPlan& plan, const std::vector<std::string>& argv) {
  require(!argv.empty(), "launch_processes needs the program's arguments");
  const comm::RendezvousMemory memory;
  const auto store = comm::make_memory_rendezvous(memory.descriptor());
  SignalWatch signals;
  Children children;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    children.start(rank, argv, child_environment(rank, plan.ranks, memory.descriptor()), signals.previous_mask(),
                   memory.descriptor());
  }

  std::vector<Child> failures;  // before this process ended anybody
  int interrupt = 0;
  std::optional<Clock::time_point> settled;   // when the failures are complete and the others are told to end
  std::optional<Clock::time_point> deadline;  // when those that still run are killed
  while (children.any_running()) {
    if (const int signal = signals.wait_for(poll_interval)) {
      children.send(interrupt ? SIGKILL : signal);
      if (!interrupt) deadline = Clock::now() + interrupt_grace;
      interrupt = signal;
    }
    children.reap();
    const auto now = Clock::now();
    if (!interrupt && !settled && !children.failures().empty()) {
      const Child first = children.failures().front();
      if (first.killed()) report_death(*store, first.rank, fmt::format("(process {}) {}", first.process, first.how_it_ended()));
      settled = now + (first.killed() ? last_words_time : settle_time);
    }
    if (!interrupt && failures.empty() && settled && now >= *settled) {
      failures = children.failures();
      children.end();
      deadline = now + plan.grace;
    }
    if (deadline && now >= *deadline) children.send(SIGKILL);
  }
  failures = failures.empty() ? children.failures() : children.failures_with_stopped(failures);
  if (failures.empty()) return 0;
  if (interrupt)
    throw Interrupted(std::string("interrupted by signal ") + std::to_string(interrupt) + " (" + strsignal(interrupt) + ")");
  return report(failures);
}

}  // namespace plait::launch
