// The launch plan: how the ranks of a job are started, and on which devices.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/choices.h"
#include "core/device.h"
#include "launch/rank_context.h"

namespace plait::launch {

struct LaunchPlan {
  LaunchMode mode = LaunchMode::threads;
  int ranks = 1;
  std::vector<Device> devices;  // by rank; in external mode one entry, this rank's
  std::string explanation;      // "2 ranks as threads on the CPU: no usable NVIDIA driver (...)"
  std::string warning = {};     // a line if an outside launcher has started more processes and each trains for itself
  RankBinding bind = RankBinding::automatic;  // launch.bind
  std::string binding = {};                   // of ranks to processors (rank_binding.h); "" on CPUs, whose ranks are not bound
  std::optional<RankContext> this_rank;       // set if this process is one rank of the job: a child of `processes`, or external
  PeerAccessUse peer_access = PeerAccessUse::automatic;
  std::chrono::milliseconds grace{10'000};  // processes: from SIGTERM to SIGKILL
};

// Decides mode, number of ranks and devices. ConfigError when the machine cannot satisfy the configuration. `joined`: the
// result of join_job() (agreement.h), if this process has already joined the other ranks.
LaunchPlan plan_launch(const Config& config, std::shared_ptr<comm::Rendezvous> joined = nullptr);

}  // namespace plait::launch
