// plan.json: what a run will do, for people and programs.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "parallel/rank_plan.h"

namespace plait::parallel {

// The keys are {"layout", "schedule", "zero", "micro_batches", "precision", "placement", "stages", "predicted",
// "memory_bytes_by_kind", "buckets"} and everything in `decision`, which plan/report.h makes: "predicted", and the reasons for
// running like that. `plans`: those of all ranks, or of one rank per pipeline coordinate. `devices`: the name of each rank's
// device, "cuda:0".
nlohmann::ordered_json plan_document(const std::vector<RankPlan>& plans, const std::vector<std::string>& devices,
                                     const nlohmann::ordered_json& decision);

nlohmann::ordered_json to_json(const Layout& layout);  // {"pipeline": 1, "data": 4, "tensor": 1}
nlohmann::ordered_json to_json(const Program& program);
nlohmann::ordered_json to_json(const MemoryPlan& plan);  // every item

}  // namespace plait::parallel
