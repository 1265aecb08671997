// Opens launch.rendezvous: the rendezvous of a job whose ranks an outside launcher has started.
#pragma once

#include <memory>
#include <string>

#include "comm/rendezvous.h"
#include "config/config.h"

namespace plait::launch {

// `job` names the job and this attempt at it, identically on all ranks. Over TCP rank 0 listens from now on; the others reach
// it when they first need it. ConfigError if the configuration or the environment is incomplete or does not fit this host;
// CommError if the place is taken.
std::shared_ptr<comm::Rendezvous> open_rendezvous(const Config& config, int rank, int size, const std::string& job);

}  // namespace plait::launch
