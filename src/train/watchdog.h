// Watches one rank from a thread of its own, off the path of the step: when its device stands still for too long, it finds out
// with the other ranks' watchdogs who waits for whom, says so, and ends the rank's communication so that the run can end.
//
// Every rank's watchdog answers when one of them raises the alarm, also a rank that has nothing to do or whose own thread hangs.
// A rank that does not answer is stopped, dead, or hangs as a whole; where its process can be looked at, that is said too.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "comm/rendezvous.h"
#include "parallel/mesh.h"
#include "parallel/progress_board.h"

namespace plait::train {

// What a rank answers: itself, and what its streams stand at.
struct RankStanding {
  struct Stream {
    std::string stream;           // "receive from pipeline rank 1"
    std::string instruction;      // at its head: "receive_gradient micro-batch 0 chunk 0"
    std::vector<std::string> behind;  // instructions of other streams of the rank that have to come first
    std::vector<int> peers;       // ranks it needs, where nothing of its own is in its way
  };
  int rank = 0;
  std::int64_t process = 0;
  std::string host;
  std::vector<Stream> streams;    // those with something to do
};

// Who holds up whom, beginning with `first`: a line for each rank on the way to the one that waits for nobody, or does not
// answer. `answers` by rank; nothing where a rank gave none, with `silent` saying what is known of it.
std::string explain_standstill(int first, const std::vector<std::optional<RankStanding>>& answers,
                               const std::function<std::string(int rank)>& silent);

struct WatchdogSpec {
  int rank = 0, size = 1;
  parallel::Layout layout;
  int last_stage_rank = 0;                  // pipeline rank of the last stage (parallel::RankPlan)
  std::chrono::milliseconds timeout{60'000};  // comm.timeout_s: the run is over within this time after everything stopped
  std::shared_ptr<comm::Rendezvous> store;
  std::string name;                         // of the job's watchdogs; a store serves several jobs one after the other
  std::function<parallel::ProgressBoard::Reading()> read;     // thread-safe
  std::function<void(const std::string& reason)> abort;       // thread-safe; ends the rank's communication
};

// What the system says of a rank's process.
struct ProcessState {
  std::string words;        // "its process 4711 is stopped (SIGSTOP, or a debugger)"
  bool may_answer = false;
};

class Watchdog {
 public:
  explicit Watchdog(WatchdogSpec spec);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

 private:
  void watch(std::stop_token stop);
  void answer_alarm(const std::string& alarm);
  RankStanding standing() const;
  ProcessState state_of_rank(int rank) const;

  const WatchdogSpec spec_;
  std::jthread thread_;
};

// Makes every watchdog of the store answer, for a reason that it cannot see itself ("rank 2 was killed by signal 9").
void raise_alarm(comm::Rendezvous& store, const std::string& reason) noexcept;

}  // namespace plait::train
