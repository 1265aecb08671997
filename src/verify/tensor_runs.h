// Locates a rank's tensors within the serial run's.
#pragma once

#include <cstdint>
#include <vector>

#include "model/parameters.h"
#include "runtime/written_tensors.h"

namespace plait::verify {

// The elements of a tensor written by forward or backward of `plan`'s rank, as runs of the serial run's tensor of the same name
// and micro-batch, whose shape is `whole`. They are in order, and cover every element that the serial run has too: a padded
// vocabulary's last columns differ in number and are left out.
std::vector<model::ElementRun> serial_runs(const parallel::RankPlan& plan, const runtime::WrittenTensor& tensor,
                                           const std::vector<std::int64_t>& whole);

}  // namespace plait::verify
