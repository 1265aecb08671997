#include "launch/launch_processes.h"

#include <poll.h>
#include <spawn.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "core/error.h"
#include "core/message.h"
#include "launch/process_state.h"
#include "launch/stop_signals.h"
#include "launch/watchdog.h"

namespace plait::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The interval for checking the children, and the time that a failure may need to show on the ranks that it hits: the report
// should name the cause, which is not always the first failure that the parent sees.
constexpr milliseconds poll_interval{20};
constexpr milliseconds settle_time{200};
// A killed rank says nothing itself; the others get this long to say what they waited for. And a rank that refuses the job is
// not the only one: the others get this long to remove what they had made for it.
constexpr milliseconds last_words_time{3'000};

struct Child {
  int rank = 0;
  pid_t process = 0;
  bool running = true;
  int status = 0;            // from waitpid, once it has ended
  bool was_stopped = false;  // stopped when it was told to end, so that it could not

  bool stopped_with_checkpoint() const { return !running && WIFEXITED(status) && WEXITSTATUS(status) == stopped_status; }
  // The status of a rank's own communication failure, usually the loss of another.
  bool may_have_lost_another() const { return !killed() && WEXITSTATUS(status) == 3; }
  bool refused() const { return !killed() && WEXITSTATUS(status) == 2; }
  bool killed() const { return !running && WIFSIGNALED(status); }
  // True if the signal `passed_on` (0: none) ended it, which is then no failure of its own.
  bool ended_by(int passed_on) const { return passed_on != 0 && killed() && WTERMSIG(status) == passed_on; }
  bool failed(int passed_on) const {
    const bool succeeded = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return !running && !succeeded && !stopped_with_checkpoint() && !ended_by(passed_on);
  }
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

// The running children; leaving its scope kills those that still run.
class Children {
 public:
  Children() = default;
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children() {
    kill();
    for (Child& child : children_) {
      while (child.running && ::waitpid(child.process, &child.status, 0) < 0 && errno == EINTR) continue;
    }
  }

  // `inherited`: a descriptor that the child keeps, although it is close-on-exec.
  void start(int rank, std::vector<std::string> arguments, std::vector<std::string> environment, int inherited) {
    const auto pointers = [](std::vector<std::string>& strings) {
      std::vector<char*> result;
      for (std::string& text : strings) result.push_back(text.data());
      result.push_back(nullptr);
      return result;
    };
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    // In its own process group, so that a Ctrl-C on the terminal reaches a child only once, from the parent.
    posix_spawnattr_setpgroup(&attributes, 0);
    const sigset_t mask = mask_of_rank_process();
    posix_spawnattr_setsigmask(&attributes, &mask);
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

  void kill() const {
    for (const Child& child : children_) {
      if (child.running) ::kill(child.process, SIGKILL);
    }
  }
  void pass_on(int signal, Stop wish) {
    passed_on_ = signal;
    if (wish == Stop::at_once) return end(signal);
    for (const Child& child : children_) {
      if (child.running) launch::pass_on(child.process, signal, wish);
    }
  }

  // Tells all to end at once. Stopped children are continued, since they would not receive the signal otherwise.
  void end(int signal) {
    for (Child& child : children_) {
      child.was_stopped = child.running && process_state(child.process) == ProcessState::stopped;
      if (child.was_stopped) ::kill(child.process, SIGKILL);
      if (child.running) launch::pass_on(child.process, signal, Stop::at_once);
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

  bool any_ended_by_signal() const {
    return std::any_of(children_.begin(), children_.end(), [this](const Child& child) { return child.ended_by(passed_on_); });
  }
  bool any_stopped_with_checkpoint() const {
    return std::any_of(children_.begin(), children_.end(), [](const Child& child) { return child.stopped_with_checkpoint(); });
  }

  // The failures so far, the likeliest causes first: killed children, then those with a status other than 3 (also the status of
  // a rank that has lost its peer), and those that were stopped, which is a way to be lost.
  std::vector<Child> failures() const {
    std::vector<Child> failed;
    std::copy_if(children_.begin(), children_.end(), std::back_inserter(failed),
                 [this](const Child& child) { return child.failed(passed_on_); });
    const auto place = [](const Child& child) {
      if (child.was_stopped) return 2;
      return child.killed() ? 0 : child.may_have_lost_another() ? 3 : 1;
    };
    std::stable_sort(failed.begin(), failed.end(), [&](const Child& a, const Child& b) { return place(a) < place(b); });
    return failed;
  }

  // From `before`, the stopped children and those that ended with their own status, which may take longer than the others need
  // to lose them; the rest failed later because they were told to end.
  std::vector<Child> causes_of_the_end(const std::vector<Child>& before) const {
    std::vector<Child> all = failures();
    std::erase_if(all, [&](const Child& child) {
      const auto is_it = [&](const Child& other) { return other.rank == child.rank; };
      const bool own_status = !child.killed() && !child.may_have_lost_another();
      return !child.was_stopped && !own_status && std::none_of(before.begin(), before.end(), is_it);
    });
    return all;
  }

 private:
  std::vector<Child> children_;
  int passed_on_ = 0;  // the signal sent to the children
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

// Statuses 3 usually belong to the others, which lost the first one; they share one line.
int report(const std::vector<Child>& failures) {
  std::string text;
  std::vector<int> lost_it;
  for (const Child& child : failures) {
    const bool first = text.empty();
    if (!first && child.may_have_lost_another()) {
      lost_it.push_back(child.rank);
    } else {
      text += (first ? "" : "; ") + child.describe();
    }
  }
  if (!lost_it.empty())
    text += fmt::format("; rank{} {} exited with status 3", lost_it.size() > 1 ? "s" : "", fmt::join(lost_it, ", "));
  const int status = WEXITSTATUS(failures.front().status);
  if (failures.front().killed() || status > 3) throw CommError(text);
  message_to_stderr(text);
  return status;
}

}  // namespace

int launch_processes(const LaunchPlan& plan, const std::vector<std::string>& argv) {
  require(!argv.empty(), "launch_processes needs the program's arguments");
  const comm::RendezvousMemory memory;
  const auto store = comm::make_memory_rendezvous(memory.descriptor());
  const StopSignals signals;
  const StopSignals::Attendance attendance;
  Children children;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    children.start(rank, argv, child_environment(rank, plan.ranks, memory.descriptor()), memory.descriptor());
  }

  std::vector<Child> failures;                // before this process ended any child
  Stop wish = Stop::none;                     // the wish that the children know of
  std::optional<Clock::time_point> settled;   // the failures are complete and the others are told to end
  std::optional<Clock::time_point> deadline;  // children that still run then are killed
  while (children.any_running()) {
    ::poll(nullptr, 0, static_cast<int>(poll_interval.count()));  // a signal ends the wait
    const auto now = Clock::now();
    if (signals.wish() > wish) {
      wish = signals.wish();
      children.pass_on(signals.signal(), wish);
      // Checkpoints have no time limit; a user who does not want to wait sends another signal.
      if (wish == Stop::at_once) deadline = now + plan.grace;
    }
    children.reap();
    // A child that ended by the signal before it could stop with the others takes away what they wait for.
    const bool left_alone = wish == Stop::at_boundary && children.any_ended_by_signal() && !settled;
    if (!settled && wish < Stop::at_once && (left_alone || !children.failures().empty())) {
      settled = now + settle_time;
      if (!left_alone) {
        const Child first = children.failures().front();
        if (first.refused()) settled = now + last_words_time;
        if (first.killed()) {
          report_death(*store, first.rank, fmt::format("(process {}) {}", first.process, first.how_it_ended()));
          settled = now + last_words_time;
        }
      }
    }
    if (!deadline && settled && now >= *settled) {
      failures = children.failures();
      children.end(SIGTERM);
      deadline = now + plan.grace;
    }
    if (deadline && now >= *deadline) children.kill();
  }
  if (wish == Stop::at_once && (children.any_ended_by_signal() || !children.failures().empty())) {
    throw Interrupted("ended at once by a second signal", signals.signal());
  }
  failures = failures.empty() ? children.failures() : children.causes_of_the_end(failures);
  if (!failures.empty()) return report(failures);
  if (children.any_ended_by_signal())
    throw Interrupted("interrupted by " + describe_signal(signals.signal()), signals.signal());
  return children.any_stopped_with_checkpoint() ? stopped_status : 0;
}

}  // namespace plait::launch
