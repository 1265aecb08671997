// What the configuration and the environment say about devices and positions in the job. Shared by the launcher's files.
#pragma once

#include <string>

#include "core/config.h"
#include "core/device.h"
#include "launch/rank_context.h"

namespace plait::launch {

struct DeviceChoice {
  DeviceKind kind = DeviceKind::host;
  int count = 0;       // GPUs of this host; 0 on the CPU
  std::string reason;  // why this kind
};

// launch.device, where `auto` is a GPU if there is one. ConfigError if it asks for GPUs and there are none.
DeviceChoice choose_devices(const Config& config);

// launch.ranks, or what follows from the rest of a configuration that leaves nothing to the planner.
int rank_count(const Config& config, const DeviceChoice& devices);

// The device of a rank of this host: the GPU that placement.devices gives it, or the one of its own number. Ranks on CPUs are
// not placed.
Device placed_device(const Config& config, DeviceKind kind, int rank);

// Which rank of an outside launcher's job this process is; it has no rendezvous yet. ConfigError if the environment does not
// say.
RankContext external_place(const Config& config);

}  // namespace plait::launch
