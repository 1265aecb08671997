// Ledgers of all ranks on one.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launch/launch.h"
#include "parallel/ledger.h"

namespace plait::train {

// Collective over all ranks: every rank's `own` on rank 0, by rank; empty elsewhere. `name`: of this exchange, unique in the
// job. CommError where a rank does not come within `timeout`.
std::vector<parallel::Ledger> gather_ledgers(launch::RankContext& rank, const std::string& name, const parallel::Ledger& own,
                                             std::chrono::milliseconds timeout);

}  // namespace plait::train
