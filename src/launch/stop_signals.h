// The signals that tell a job to stop: SIGINT, SIGTERM, SIGUSR1 (what Slurm's --signal sends) and SIGHUP.
//
// The handlers only note what came. The first signal asks for a stop with a checkpoint at the next boundary
// (launch/stop_agreement.h), a second one for an end at once, and a third ends the process as if there were no handler.
//
// One wish often comes as several signals: a terminal's Ctrl-C reaches every process of the foreground group, launchers
// (mpirun, torchrun, timeout) pass on what they and their children got already, and Slurm signals every process of a job step.
// So
//   * what comes within `same_wish` of the first signal is the first;
//   * ranks that plait's own launcher has started are in process groups of their own, and hear from the launcher which it was.
//     One from anybody else is a first signal to them, never a second.
// A signal that is ignored when the program starts (nohup, a shell's background job) stays ignored.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <string>

namespace plait::launch {

// How `plait train` ends when it was stopped and goes on by --resume: EX_TEMPFAIL of sysexits.h, "try again". It lies below
// 126, so that no shell takes it for a signal.
inline constexpr int stopped_status = 75;

enum class Stop { none, at_boundary, at_once };

// While one exists, the signals are noted; what they did before comes back with the end of the last. The first starts without a
// wish. To be made by one thread.
class StopSignals {
 public:
  static constexpr std::chrono::milliseconds same_wish{1000};

  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // They are noted to the end of the process. By the thread that made this.
  void stay() const;

  // From any thread.
  Stop wish() const;
  int signal() const;  // the first that came; 0: none

  // Somebody sees to it that the process ends at once if that is wished. Without one, the second signal ends it as if there
  // were no handler.
  class Attendance {
   public:
    Attendance();
    Attendance(const Attendance&) = delete;
    Attendance& operator=(const Attendance&) = delete;
    ~Attendance();
  };
};

// To a rank's process, by the launcher that started it.
void pass_on(pid_t process, int signal, Stop wish);

// The mask that a rank's process is started with: this thread's, and the stop signals blocked, so that none comes before the
// handlers are there. That process calls unblock_stop_signals() once it is ready. SIGTTOU stays blocked: its process group is
// not the terminal's, and under `stty tostop` its first line would stop it.
sigset_t mask_of_rank_process();
void unblock_stop_signals();

// "signal 15 (Terminated)".
std::string describe_signal(int signal);

// Ends the process by `signal`, as if there were no handler, so that shells see what ended it.
[[noreturn]] void end_by(int signal);

}  // namespace plait::launch
