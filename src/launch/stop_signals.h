// The signals that tell a job to stop: SIGINT, SIGTERM, SIGUSR1 (sent by Slurm's --signal) and SIGHUP.
//
// The handlers only note signals. The first signal asks for a stop with a checkpoint at the next boundary
// (launch/stop_agreement.h), a second one for an end at once, and a third ends the process as if there were no handler.
//
// One wish often arrives as a group of signals: a terminal's Ctrl-C reaches every process of the foreground group, launchers
// (mpirun, torchrun, timeout) pass on signals that their children already received, and Slurm signals every process of a job
// step. So
//   * signals within `same_wish` of the first one count as the first;
//   * ranks started by plait's own launcher are in their own process groups, and the launcher tells them which signal it was.
//     A signal from anybody else is a first signal to them, never a second.
// A signal that is ignored when the program starts (nohup, a shell's background job) stays ignored.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <string>

namespace plait::launch {

// The exit status of a `plait train` that was stopped and can continue by --resume: EX_TEMPFAIL of sysexits.h, "try again". It
// lies below 126, so that no shell takes it for a signal.
inline constexpr int stopped_status = 75;

enum class Stop { none, at_boundary, at_once };

// While one exists, the signals are noted; the end of the last restores their earlier handling. The first starts without a
// wish. Made by one thread.
class StopSignals {
 public:
  static constexpr std::chrono::milliseconds same_wish{1000};

  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // Keeps noting them to the end of the process. Called by the thread that made this.
  void stay() const;

  // From any thread.
  Stop wish() const;
  int signal() const;  // the first one received; 0: none

  // Its holder ensures that the process ends at once if that is wished. Without one, the second signal ends it as if there were
  // no handler.
  class Attendance {
   public:
    Attendance();
    Attendance(const Attendance&) = delete;
    Attendance& operator=(const Attendance&) = delete;
    ~Attendance();
  };
};

// Passes a signal to a rank's process; called by the launcher that started it.
void pass_on(pid_t process, int signal, Stop wish);

// The signal mask for starting a rank's process: this thread's, plus the stop signals, so that none arrives before the handlers
// exist. That process calls unblock_stop_signals() once it is ready. SIGTTOU stays blocked: its process group is not the
// terminal's, and under `stty tostop` its first line would stop it.
sigset_t mask_of_rank_process();
void unblock_stop_signals();

// "signal 15 (Terminated)".
std::string describe_signal(int signal);

// Ends the process by `signal`, as if there were no handler, so that shells see what ended it.
[[noreturn]] void end_by(int signal);

}  // namespace plait::launch
