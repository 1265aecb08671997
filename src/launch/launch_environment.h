// This process's place in a job whose ranks are processes: from the configuration, and from the environment variables that its
// launcher set.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "comm/rendezvous.h"
#include "config/config.h"
#include "launch/rank_context.h"

namespace plait::launch {

// This process's position, if it was started as one rank: by our own launcher (launch.mode processes) or an outside one
// (external). Opens the rendezvous unless it is `joined`. ConfigError if the mode is external and the environment does not give
// the position.
std::optional<RankContext> rank_from_environment(const Config& config, std::shared_ptr<comm::Rendezvous> joined = nullptr);

// The same with neither device, which a host may lack, nor rendezvous.
std::optional<RankContext> place_from_environment(const Config& config);

// The rendezvous of the rank at this place. Opened once in a job: rank 0 may be the one that serves it.
std::shared_ptr<comm::Rendezvous> rendezvous_of(const RankContext& place, const Config& config);

// Opens launch.rendezvous: the rendezvous of a job whose ranks an outside launcher has started. `job` names the job and this
// attempt at it, identically on all ranks. Over TCP rank 0 listens from now on; the others reach it when they first need it.
// ConfigError if the configuration or the environment is incomplete or does not fit this host; CommError if the place is taken.
std::shared_ptr<comm::Rendezvous> open_rendezvous(const Config& config, int rank, int size, const std::string& job);

}  // namespace plait::launch
