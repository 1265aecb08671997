// Ranks that do the same at the same time, so that one of them stands for all.
//
// A partition of ranks, groups and channels is equitable when all members of a class are alike in what they depend on:
//   ranks     the same program, the same work; their peers are of the same classes, and so are their groups; their messages
//             cross channels of the same classes and are as fast alone
//   groups    the same kind; members of the same classes; their rings cross channels of the same classes and are as fast alone
//   channels  the same bandwidth; crossed equally often by flows of each class
// If all members of each class are in the same state at one time, each channel of a class carries as many flows. So all flows
// of a class have the same rate, and all members are in the same state at the next event, in floating point too. At the
// beginning they are. So running one of each class is exact. The coarsest equitable partition is found by refinement: begin
// with members that are alike by themselves, and separate them by the classes of their neighbours until nothing changes (Paige
// and Tarjan 1987, here in whole rounds). Whole signatures are compared, not hashes.
#pragma once

#include <vector>

#include "plan/simulation/job.h"

namespace plait::plan::simulation {

// Class numbers are dense and ascend with the lowest member.
struct Classes {
  std::vector<int> of_rank, of_meet, of_channel;  // of_channel: by channel
  int ranks = 0, meets = 0, channels = 0;         // number of classes of each
};

Classes coarsest_classes(const Job& job);
// Puts each rank, group and channel in a class of its own.
Classes single_classes(const Job& job);

}  // namespace plait::plan::simulation
