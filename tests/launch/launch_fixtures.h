// What tests of launching share.
#pragma once

#include <memory>

#include "child_process.h"
#include "comm/communicator.h"
#include "core/temporary_directory.h"
#include "environment_variable.h"
#include "launch/launch.h"

namespace plait::launch::test {

using plait::test::EnvironmentVariable;
using plait::test::run_child;
using plait::test::TemporaryDirectory;
using plait::test::was_killed_by;

// Joins all ranks of a launched job as one group.
inline std::shared_ptr<comm::Communicator> join(const RankContext& context) {
  comm::GroupSpec spec;
  spec.name = "job";
  spec.rank = context.rank;
  spec.size = context.size;
  spec.device = context.device;
  return make_communicator(spec, *context.rendezvous);
}

}  // namespace plait::launch::test
