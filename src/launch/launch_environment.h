// What the configuration and the environment say about devices and positions in the job. Shared by the launcher's files.
#pragma once

#include <memory>
#include <optional>
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

// ConfigError about the configuration's rules for devices of this kind, where `auto` or a plan for another machine makes it
// so, which `why` says: reading a configuration judges what launch.device says alone.
void check_device_rules(const Config& config, DeviceKind kind, const std::string& why);

// A process that an outside launcher has started beside others.
struct OutsideRank {
  std::string launcher;  // "torchrun"
  int rank = 0, size = 2;
};

// What the environment says about this process; nothing in a shell, or where the launcher has started one process only. All of
// rank, size and rank within the host have to be there, as numbers that fit. Slurm sets them in batch scripts and in the shell
// that salloc opens too, whatever number of tasks the allocation is for: only a job step that srun started, with two tasks at
// least, counts, and not the shell of srun --pty.
std::optional<OutsideRank> started_from_outside();

// How ranks are started: launch.mode, where `auto` is external if this process was started_from_outside(), else threads. With
// a launch.rendezvous it is external too where the environment says a rank or how many there are, though not all of it: ranks
// that are to meet must not each train alone, so what is missing is an error (rank_from_environment).
LaunchMode launch_mode(const Config& config);

// rank_from_environment() (launch_plan.h) with neither device, which a host may lack, nor rendezvous.
std::optional<RankContext> place_from_environment(const Config& config);

// Where the rank at this place meets the others. To be opened once in a job: rank 0 may be the one that serves it.
std::shared_ptr<comm::Rendezvous> rendezvous_of(const RankContext& place, const Config& config);

// launch.ranks, or what follows from the rest of a configuration that leaves nothing to the planner.
int rank_count(const Config& config, const DeviceChoice& devices);

// How many places comm.p2p_pairs counts in a job of `ranks` ranks: GPUs of this host, or ranks, where these are on CPUs or
// several hosts.
int places_of_pairs(const Config& config, const DeviceChoice& devices, int ranks);

// ConfigError if comm.p2p_pairs names one that there is not.
void check_pairs(const Config& config, const DeviceChoice& devices, int ranks);

// Bytes of its device that a rank may have, where something other than the device says so; else 0: launch.memory_gib, or of
// ranks that are CPUs of this host their share of its memory.
double memory_of_rank(const Config& config, DeviceKind kind, int ranks);

// The device of a rank of this host: the GPU that placement.devices gives it, or the one of its own number. Ranks on CPUs are
// not placed.
Device placed_device(const Config& config, DeviceKind kind, int rank);

}  // namespace plait::launch
