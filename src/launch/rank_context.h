// A rank's context: its position in the job, and the objects it shares with the others. The rank's body receives it.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/meeting.h"
#include "comm/rendezvous.h"
#include "core/device.h"
#include "runtime/rank_life.h"

namespace plait::launch {

struct RankContext {
  int rank = 0;
  int size = 1;
  Device device;
  std::shared_ptr<comm::Rendezvous> rendezvous;
  int local_rank = 0;   // among the ranks of this host
  bool is_main = true;  // rank 0: the one that prints and writes files
  // Made by launch() for each run; code that waits for other ranks registers what ends the wait (RankLife::on_abort).
  std::shared_ptr<runtime::RankLife> life;

  // A meeting of all ranks of the job. `name` is used once in a job; `timeout`: comm.timeout_s.
  comm::Meeting meeting(const std::string& name, std::chrono::milliseconds timeout) const {
    return {*rendezvous, name, rank, size, timeout};
  }
};

}  // namespace plait::launch
