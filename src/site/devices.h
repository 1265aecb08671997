// The devices that a configuration means on this machine, and the ranks on them.
#pragma once

#include <string>

#include "config/config.h"
#include "core/device.h"

namespace plait::site {

struct DeviceChoice {
  DeviceKind kind = DeviceKind::host;
  int count = 0;       // GPUs of this host; 0 on the CPU
  std::string reason;  // reason for this kind
};

// launch.device, where `auto` is a GPU if there is one. ConfigError if it asks for GPUs and there are none.
DeviceChoice choose_devices(const Config& config);

// ConfigError about the configuration's rules for devices of this kind, if `auto` or a plan for another machine chose it; `why`
// says which. (Reading a configuration only judges launch.device itself.)
void check_device_rules(const Config& config, DeviceKind kind, const std::string& why);

// launch.ranks, or the number that follows from the rest of a configuration that leaves nothing to the planner.
int rank_count(const Config& config, const DeviceChoice& devices);

// The number of ranks that the configuration itself fixes; 0: none.
int fixed_ranks(const Config& config);

// The number of places that comm.p2p_pairs counts in a job of `ranks` ranks: GPUs of this host; or ranks, if these are on CPUs
// or on more than one host.
int places_of_pairs(const Config& config, const DeviceChoice& devices, int ranks);

// ConfigError if comm.p2p_pairs names a place that does not exist.
void check_pairs(const Config& config, const DeviceChoice& devices, int ranks);

// Bytes of its device that a rank may use, if not limited by the device alone; else 0: launch.memory_gib or, for ranks that are
// CPUs of this host, their share of its memory.
double memory_of_rank(const Config& config, DeviceKind kind, int ranks);

// The number of ranks to a device: launch.ranks_per_device, where `auto` is as few as `ranks` ranks need. 1 on CPUs, which all
// ranks share as it is.
int ranks_per_device(const Config& config, const DeviceChoice& devices, int ranks);

// The device of one of the `ranks` ranks of this host: the GPU that placement.devices gives it, or the one of its own number,
// divided by the ranks to a device. Ranks on CPUs are not placed.
Device placed_device(const Config& config, const DeviceChoice& devices, int rank, int ranks);

// ConfigError if one host cannot start so many ranks.
void check_host_ranks(int ranks);

}  // namespace plait::site
