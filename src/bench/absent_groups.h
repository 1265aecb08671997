// The communicators and links of a rank whose peers do not exist.
#pragma once

#include "core/device.h"
#include "parallel/rank_plan.h"
#include "runtime/rank_groups.h"

namespace plait::bench {

// Collectives copy this rank's data in place of the others' (comm/communicator.h). A sent message is copied out, and a
// received one is a copy of equally many random values: the same bytes, over the device's own memory. `memory` must outlive the
// groups.
runtime::RankGroups absent_groups(const parallel::RankPlan& plan, DeviceMemory& memory);

}  // namespace plait::bench
