// plait bench step: measures the speed of a configuration's training step, and where its time goes.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/task_progress.h"

namespace plait::bench {

struct StepBenchmarkRequest {
  Config config;
  std::int64_t warmup = 5;  // steps not counted; more if train.graph has something to try
  std::int64_t steps = 20;  // measured
  bool raw = false;         // adds "measurement": every step, and every rank's memory (docs/studies.md)
  // Only this rank of the layout, on the first device: collectives and messages copy its own data in place of others'
  // (bench/absent_groups.h), which shows its compute time without any waiting. -1: all ranks.
  std::int64_t alone = -1;
  bool breakdown = false;  // adds one step in which every instruction is timed, from the end of its predecessors
  std::vector<std::string> argv;
  ProgressCallback progress = no_progress;  // on rank 0, after each step and before the first
};

// Runs the real step (data path, communication, update) on all ranks; calls `on_result` once, on rank 0:
// {"model", "ranks", "step_ms": {"median", "median_interval": [low, high], "mean", "min", "max"}, "tokens_per_second",
// "tflops_per_gpu", "mfu", "exposed_comm_ms",
//  "predicted": {"step_ms", "machine": source of the figures}, if there is a prediction,
//  "launch": how steps are launched, and why (Interpreter::launch_text; on GPUs),
//  "ledgers": [by rank, means], "alone": rank if requested, "exceeded_bounds": [...], "memory": {...}, "loss",
//  "breakdown": [...]}. Times are those of rank 0's compute stream, from the end of one step to the end of the next. Returns
//  the exit status: 1 if the ranks' ledgers exceed `bounds` of the configuration. The median of all such steps lies in
//  median_interval with a probability of 95 % (core/statistics.h).
int benchmark_step(const StepBenchmarkRequest& request, const std::function<void(const nlohmann::ordered_json&)>& on_result);

}  // namespace plait::bench
