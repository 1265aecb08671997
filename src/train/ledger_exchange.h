// Gathers the ledgers of all ranks on rank 0.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launch/launch.h"
#include "parallel/ledger.h"

namespace plait::train {

// Collective over all ranks. Returns every rank's `own`, by rank, on rank 0; empty elsewhere. `name`: of this exchange, unique
// in the job. CommError if a rank does not arrive within `timeout`.
std::vector<parallel::Ledger> gather_ledgers(launch::RankContext& rank, const std::string& name, const parallel::Ledger& own,
                                             std::chrono::milliseconds timeout);

}  // namespace plait::train
