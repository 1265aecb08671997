// Facts that were decided for a job on its machine and are no keys of its configuration.
#pragma once

#include <memory>
#include <optional>

#include "config/config.h"

namespace plait::parallel {

// The same on all ranks of a job. Decision{}: nothing was decided.
struct Decision {
  // The passes of ScheduleKind::planned, as they were planned. Null: listed by FLOPs (parallel/rank_plan.h).
  std::shared_ptr<const ScheduleFile> passes = {};
  // The way that comm.exchanges and comm.reductions: auto stand for (site/site_planning.h). Nothing: the library.
  std::optional<CollectiveWay> collectives = {};
};

// A configuration with the decisions that come with it, as those of a plan.json.
struct DecidedConfig {
  Config config;
  Decision decision;
};

}  // namespace plait::parallel
