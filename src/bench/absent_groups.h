// The communicators and links of a rank whose peers do not exist.
#pragma once

#include "core/device.h"
#include "parallel/rank_plan.h"
#include "runtime/rank_groups.h"

namespace plait::bench {

// Collectives copy this rank's data where they would bring others' (comm/absent_communicator.h). A message that is sent is
// copied out, and one of equal size, of random values, is copied in where one is received: the same bytes, over the device's
// own memory. `memory` must outlive the groups.
runtime::RankGroups absent_groups(const parallel::RankPlan& plan, DeviceMemory& memory);

}  // namespace plait::bench
