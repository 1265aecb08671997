// plan.json: what a run will do, for people and programs.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "parallel/rank_plan.h"

namespace plait::parallel {

// {"layout", "schedule", "zero", "micro_batches", "precision", "placement", "stages", "predicted", "memory_bytes_by_kind",
// "buckets"} and everything in `decision`, which plan/report.h makes: "predicted" and why it is to run like that.
// `plans`: of all ranks, or of one rank of each pipeline coordinate. `devices`: name of each rank's device, "cuda:0".
nlohmann::ordered_json plan_document(const std::vector<RankPlan>& plans, const std::vector<std::string>& devices,
                                     const nlohmann::ordered_json& decision);

nlohmann::ordered_json to_json(const Layout& layout);  // {"pipeline": 1, "data": 4, "tensor": 1}
nlohmann::ordered_json to_json(const Program& program);
nlohmann::ordered_json to_json(const MemoryPlan& plan);  // every item

}  // namespace plait::parallel
