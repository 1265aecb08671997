// plan.json: what a run will do, for people and programs.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "parallel/rank_plan.h"

namespace plait::parallel {

// {"layout", "schedule", "placement", "precision", "memory", "predicted": {"peak_bytes"}, "buckets"}. `plans`: of all ranks,
// or of one rank of each pipeline coordinate.
// `devices`: name of each rank's device, "cuda:0".
nlohmann::ordered_json to_json(const std::vector<RankPlan>& plans, const std::string& schedule,
                               const std::vector<std::string>& devices);

nlohmann::ordered_json to_json(const Program& program);
nlohmann::ordered_json to_json(const MemoryPlan& plan);  // every item

}  // namespace plait::parallel
