// Predicted and measured figures of a run side by side: prediction.json of a run directory, and the summary of runs.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace plait::train {

struct RunFigures {
  double step_ms = 0, exposed_comm_ms = 0;
  std::vector<double> peak_bytes;  // by rank
};

struct Accuracy {
  std::string run;      // directory
  std::string layout;   // "pipeline 2 x data 2 x tensor 1, zb-h1, micro-batch 2"
  std::string machine;  // the source of the prediction: "nominal figures of H200"
  RunFigures predicted, measured;

  double step_error() const;          // predicted / measured - 1
  double worst_memory_error() const;  // over all ranks, the largest in magnitude; 0 if nothing was measured
};

// The prediction of a job's plan (launch::SettledJob::plan); nullopt if it predicts nothing.
std::optional<Accuracy> predicted_run(const nlohmann::ordered_json& plan);

// {"layout", "machine", "predicted": {"step_ms", "exposed_comm_ms", "peak_bytes"}, "measured": {...}}
nlohmann::ordered_json to_json(const Accuracy& accuracy);
// Reads RUN_DIR/prediction.json. ConfigError naming the file if it is missing or is something else.
Accuracy read_accuracy(const std::filesystem::path& run_dir);

// "predicted 52.1 ms a step, measured 54.0 (-3.5 %); ...": one line, at the end of a run.
std::string accuracy_line(const Accuracy& accuracy);

// A line per run, then the median and the largest error, and the agreement between the predicted and the measured order of the
// runs.
std::string accuracy_table(const std::vector<Accuracy>& runs, int width);
nlohmann::ordered_json accuracy_json(const std::vector<Accuracy>& runs);

}  // namespace plait::train
