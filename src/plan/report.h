// Reports of a plan: as text for people, as JSON for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/planner.h"

namespace plait::plan {

// The machine and devices that a plan was made for; shown first.
struct PlanContext {
  std::string machine;               // "nominal figures of H200"
  std::string topology;              // "live", "assumed: ...", or a file's name
  std::vector<std::string> devices;  // of each rank: "cuda:0"
  std::string cpu_binding;           // "ranks 0-3 on NUMA node 0, ..."; "" where ranks are CPUs
};

// One line on the origin of a planned schedule: the costs by which its passes were listed, and why those.
std::string origin_of_passes(const Machine& machine);

// "choice ...": the choice with its reasons: terms of the step, links, memory, the next best, rejected layouts, and what would
// change it. explanation_of() has the reasons of the choice alone, a line each.
std::string text_of(const PlannedJob& job, const Machine& machine, const PlanContext& context);
std::vector<std::string> explanation_of(const PlannedJob& job, const Machine& machine, const PlanContext& context);

// The decision as a document: {"predicted": {...}, "links": {...}, "placement_method", "cpu_binding", "alternatives": [...],
// "rejected": [...], "explanation": [...], "choice": {...}}. parallel/plan_json.h adds its description of the programs;
// apply_choice() reads "choice". "predicted" has:
//   step_ms             of one optimizer step, simulated
//   interval_ms         [at best, at worst] of that step, and interval_basis, its grounds; both null on a measured machine
//   bubble_fraction     of that step, mean over ranks
//   exposed_comm_ms     of that step, mean over ranks; exposed_dp_ms, _p2p_ms and _tp_ms are its parts
//   peak_bytes          by rank: the memory plan and the libraries' share, as a device reports its use; with more than 256
//                       ranks, each has that of the first rank of its stage
//   usable_bytes        of a device: the limit of peak_bytes (Machine::usable_bytes)
//   tokens_per_second   of all ranks; tflops_per_device, mfu (0..1, null if no peak is known): model/model_flops.h
//   run_seconds         of all train.steps, training alone; device_hours: of all devices together
//   machine, topology   that it was predicted from
nlohmann::ordered_json to_json(const PlannedJob& job, const Machine& machine, const PlanContext& context);
// The document of a job without a prediction: "predicted" is null and "explanation" has `why`.
nlohmann::ordered_json unpredicted(const std::string& why);

// The candidate that such a document chose. ConfigError naming `source` and the key if the document is not a plan.
Candidate chosen_candidate(const nlohmann::ordered_json& plan, const std::string& source);

// The configuration that a plan.json chose, with the passes of a planned schedule, on top of `config`, which must be what the
// plan was made for: ConfigError naming `source` and the key if the document is not a plan, holds what no plan has, was made
// for another model or batch, or chose otherwise than what `config` says and does not leave open.
parallel::DecidedConfig apply_choice(const Config& config, const nlohmann::json& plan, const std::string& source);

// Overrides that leave open every setting that apply_choice() decides: "parallel.NAME=auto".
std::vector<std::string> left_to_a_plan();

}  // namespace plait::plan
