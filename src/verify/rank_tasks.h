// One rank's part of a verification job.
#pragma once

#include <optional>

#include "verify/verify_job.h"

namespace plait::verify {

// Runs job.task. Collective over all ranks; returns the findings of all of them on rank 0.
std::optional<VerifyFindings> run_rank_task(const VerifyJob& job, const Config& config, const RankParts& parts,
                                            launch::RankContext& rank);

}  // namespace plait::verify
