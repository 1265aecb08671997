#include "launch/stop_signals.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "core/parse_number.h"
#include "launch/launch_processes.h"

namespace plait::launch {
namespace {

constexpr std::array<int, 4> stop_signals = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};

// Signals concern the process, so this state is global. Handlers touch nothing else.
struct Noted {
  std::atomic<int> wish = 0;  // a Stop
  std::atomic<int> signal = 0;
  std::atomic<std::int64_t> first_ms = 0;  // time of the first; 0: none
  std::atomic<int> attendants = 0;
  std::atomic<pid_t> launcher = 0;  // plait's own launcher, if this process is one of its ranks; 0: it is not
};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);
Noted noted;

struct Installed {
  int objects = 0;
  std::array<struct sigaction, stop_signals.size()> previous{};
};
Installed installed;  // used by the thread that makes StopSignals

std::int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000 + 1;  // never 0
}

sigset_t stop_signal_set() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : stop_signals) sigaddset(&set, signal);
  return set;
}

// True if the signal is a separate wish, not the first one repeated.
bool is_further_wish(const siginfo_t& info) {
  if (const pid_t launcher = noted.launcher) {
    return info.si_code == SI_QUEUE && info.si_pid == launcher && info.si_value.sival_int == static_cast<int>(Stop::at_once);
  }
  return now_ms() - noted.first_ms >= StopSignals::same_wish.count();
}

// Async-signal-safe: lock-free atomics, clock_gettime, signal and raise.
void note(int signal, siginfo_t* info, void*) {
  const int saved = errno;
  std::int64_t none = 0;
  const bool first = noted.first_ms.compare_exchange_strong(none, now_ms());
  if (first) {
    noted.signal = signal;
    noted.wish = static_cast<int>(Stop::at_boundary);
  }
  if (is_further_wish(*info)) {
    const bool second = noted.wish.exchange(static_cast<int>(Stop::at_once)) != static_cast<int>(Stop::at_once);
    if (!second || noted.attendants == 0) {
      ::signal(signal, SIG_DFL);
      ::raise(signal);  // delivered when this returns
    }
  }
  errno = saved;
}

pid_t launcher_process() {
  const char* text = std::getenv(rank_variable) ? std::getenv(launcher_variable) : nullptr;
  return text ? whole_number<pid_t>(text).value_or(0) : 0;
}

}  // namespace

StopSignals::StopSignals() {
  if (installed.objects++ > 0) return;
  noted.wish = static_cast<int>(Stop::none);
  noted.signal = 0;
  noted.first_ms = 0;
  noted.launcher = launcher_process();
  struct sigaction action{};
  action.sa_sigaction = note;
  action.sa_mask = stop_signal_set();
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  for (std::size_t i = 0; i < stop_signals.size(); ++i) {
    sigaction(stop_signals[i], nullptr, &installed.previous[i]);
    if (installed.previous[i].sa_handler != SIG_IGN) sigaction(stop_signals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  if (--installed.objects > 0) return;
  for (std::size_t i = 0; i < stop_signals.size(); ++i) sigaction(stop_signals[i], &installed.previous[i], nullptr);
}

void StopSignals::stay() const { ++installed.objects; }

Stop StopSignals::wish() const { return static_cast<Stop>(noted.wish.load()); }
int StopSignals::signal() const { return noted.signal; }

StopSignals::Attendance::Attendance() { ++noted.attendants; }
StopSignals::Attendance::~Attendance() { --noted.attendants; }

void pass_on(pid_t process, int signal, Stop wish) {
  sigval value{};
  value.sival_int = static_cast<int>(wish);
  // If no further signal can be queued, a plain one serves as well for a first wish.
  if (::sigqueue(process, signal, value) != 0 && errno == EAGAIN && wish == Stop::at_boundary) ::kill(process, signal);
}

sigset_t mask_of_rank_process() {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  for (const int signal : stop_signals) sigaddset(&mask, signal);
  sigaddset(&mask, SIGTTOU);
  return mask;
}

void unblock_stop_signals() {
  const sigset_t set = stop_signal_set();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

std::string describe_signal(int signal) { return "signal " + std::to_string(signal) + " (" + strsignal(signal) + ")"; }

void end_by(int signal) {
  ::signal(signal, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::raise(signal);
  std::_Exit(128 + signal);
}

}  // namespace plait::launch
