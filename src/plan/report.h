// A plan for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/planner.h"

namespace plait::plan {

// What a plan was made for, said first.
struct PlanContext {
  std::string machine;               // "nominal figures of H200"
  std::string topology;              // "live", "assumed: ...", or a file's name
  std::vector<std::string> devices;  // of each rank: "cuda:0"
  std::string cpu_binding;           // "ranks 0-3 on NUMA node 0, ..."; "" where ranks are CPUs
};

// "choice: ...": the choice with its reasons, in a few lines each: terms of the step, links, memory, the next best, rejected
// layouts, what would change.
std::string text_of(const PlannedJob& job, const Machine& machine, const PlanContext& context);
std::vector<std::string> explanation_of(const PlannedJob& job, const Machine& machine, const PlanContext& context);

// {"predicted": {...}, "links": {...}, "placement_method", "cpu_binding", "alternatives": [...], "rejected": [...],
// "explanation": [...],
//  "choice": {...}}, to be joined with what parallel/plan_json.h says about the programs. `choice` is what apply_choice()
//  reads.
nlohmann::ordered_json to_json(const PlannedJob& job, const Machine& machine, const PlanContext& context);

// The configuration that a plan.json chose, on top of `config`, which must be what the plan was made for: ConfigError naming
// `source` and the key if the document is no plan, holds what no plan has, or was made for another model or batch.
Config apply_choice(Config config, const nlohmann::json& plan, const std::string& source);

}  // namespace plait::plan
