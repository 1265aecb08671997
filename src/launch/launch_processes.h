// The parent's part of launch.mode processes.
#pragma once

#include <string>
#include <vector>

#include "launch/launch.h"

namespace plait::launch {

// Environment variables that tell a child its position in the job.
inline constexpr const char* rank_variable = "PLAIT_RANK";
inline constexpr const char* size_variable = "PLAIT_SIZE";
inline constexpr const char* rendezvous_variable = "PLAIT_RENDEZVOUS";  // descriptor of a comm::RendezvousMemory
inline constexpr const char* launcher_variable = "PLAIT_LAUNCHER";      // the parent's process id

int launch_processes(const LaunchPlan& plan, const std::vector<std::string>& argv);

}  // namespace plait::launch
