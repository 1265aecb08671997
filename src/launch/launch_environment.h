// Devices and positions in the job, from the configuration and the environment. Shared by the launcher's files.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "config/config.h"
#include "core/device.h"
#include "launch/rank_context.h"

namespace plait::launch {

// rank_from_environment() (launch_plan.h) with neither device, which a host may lack, nor rendezvous.
std::optional<RankContext> place_from_environment(const Config& config);

// The rendezvous of the rank at this place. Opened once in a job: rank 0 may be the one that serves it.
std::shared_ptr<comm::Rendezvous> rendezvous_of(const RankContext& place, const Config& config);

}  // namespace plait::launch
