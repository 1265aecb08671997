// Watches one rank from its own thread, off the path of the step. When the rank's device stands still for too long, or another
// rank's process is gone, or the rank's communication fails, it finds out with the other ranks' watchdogs who waits for whom,
// and aborts the rank with that as the reason, so that the run can end. It passes the rank's own errors on to the others.
//
// Every rank's watchdog answers when one of them raises the alarm, even if the rank has nothing to do or its own thread hangs.
// A rank that does not answer is stopped, dead, or hangs as a whole; if its process can be observed, the report says which. The
// answering rank of lowest number tells the whole story; the others summarise it in one line.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/rendezvous.h"
#include "parallel/mesh.h"
#include "runtime/progress_board.h"
#include "runtime/rank_life.h"

namespace plait::launch {

struct WatchdogSpec {
  int rank = 0, size = 1;
  parallel::Layout layout;
  parallel::ModelEnds ends;
  std::chrono::milliseconds timeout{60'000};  // comm.timeout_s: the run is over within this time after everything stopped
  std::shared_ptr<comm::Rendezvous> store;    // serves one job
  std::shared_ptr<runtime::RankLife> life;    // of the rank
  std::function<runtime::ProgressBoard::Reading()> read;  // thread-safe; not called once the rank has retired
  // The rank did not end in time after it was aborted, so its thread cannot be reached. Ends the process.
  std::function<void(const std::string& reason)> give_up;
};

class Watchdog {
 public:
  // Begins to watch. CommError if the store cannot be written.
  explicit Watchdog(WatchdogSpec spec);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();  // the rank has come to its end

 private:
  class Watch;
  std::unique_ptr<Watch> watch_;
};

// Tells the watchdogs of the store what happened to a rank's process, and makes them answer. Called by the process that started
// it.
void report_death(comm::Rendezvous& store, int rank, const std::string& words) noexcept;

}  // namespace plait::launch
