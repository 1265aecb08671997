// Devices and positions in the job, from the configuration and the environment. Shared by the launcher's files.
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
  std::string reason;  // reason for this kind
};

// launch.device, where `auto` is a GPU if there is one. ConfigError if it asks for GPUs and there are none.
DeviceChoice choose_devices(const Config& config);

// ConfigError about the configuration's rules for devices of this kind, if `auto` or a plan for another machine chose it; `why`
// says which. (Reading a configuration only judges launch.device itself.)
void check_device_rules(const Config& config, DeviceKind kind, const std::string& why);

// A process that an outside launcher has started together with others.
struct OutsideRank {
  std::string launcher;  // "torchrun"
  int rank = 0, size = 2;
};

// This process's place from the environment; nullopt in a shell, or if the launcher has started only one process. Rank, size
// and rank within the host must all be there, as valid numbers. Slurm also sets them in batch scripts and in salloc's shell,
// for any number of tasks: only a job step that srun started, with at least two tasks, counts, and not the shell of srun --pty.
std::optional<OutsideRank> started_from_outside();

// The way ranks are started: launch.mode, where `auto` is external if this process was started_from_outside(), else threads.
// With a launch.rendezvous it is also external if the environment gives a rank or a number of ranks, even if incomplete: ranks
// that should meet must not each train alone, so missing variables are an error (rank_from_environment).
LaunchMode launch_mode(const Config& config);

// rank_from_environment() (launch_plan.h) with neither device, which a host may lack, nor rendezvous.
std::optional<RankContext> place_from_environment(const Config& config);

// The rendezvous of the rank at this place. Opened once in a job: rank 0 may be the one that serves it.
std::shared_ptr<comm::Rendezvous> rendezvous_of(const RankContext& place, const Config& config);

// launch.ranks, or the number that follows from the rest of a configuration that leaves nothing to the planner.
int rank_count(const Config& config, const DeviceChoice& devices);

// The number of places that comm.p2p_pairs counts in a job of `ranks` ranks: GPUs of this host; or ranks, if these are on CPUs
// or on more than one host.
int places_of_pairs(const Config& config, const DeviceChoice& devices, int ranks);

// ConfigError if comm.p2p_pairs names a place that does not exist.
void check_pairs(const Config& config, const DeviceChoice& devices, int ranks);

// Bytes of its device that a rank may use, if not limited by the device alone; else 0: launch.memory_gib or, for ranks that are
// CPUs of this host, their share of its memory.
double memory_of_rank(const Config& config, DeviceKind kind, int ranks);

// The device of a rank of this host: the GPU that placement.devices gives it, or the one of its own number. Ranks on CPUs are
// not placed.
Device placed_device(const Config& config, DeviceKind kind, int rank);

}  // namespace plait::launch
