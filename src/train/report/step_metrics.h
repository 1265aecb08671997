// The metrics of one logged step: the same numbers go to metrics.jsonl, which is written here, TensorBoard and the screen.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "core/file.h"
#include "parallel/ledger.h"

namespace plait::train {

struct StepMetrics {
  std::int64_t step = 0;         // optimizer steps done, including this one: the first is 1
  double loss = 0;               // mean over the step's targets that count, nats; 0 without any
  std::int64_t loss_tokens = 0;  // number of those targets
  double learning_rate = 0;
  double grad_norm = 0;                    // before clipping
  double tokens_per_second = 0;            // of the whole run, not per device
  double step_ms = 0;                      // mean over the steps since the last report
  std::optional<double> data_stalled_ms;   // per step: the host waited for the next batch
  std::optional<double> exposed_comm_ms;   // per step: communication that computation did not hide
  std::optional<parallel::Ledger> ledger;  // the same in more detail, for this rank; only with more than one rank
  std::optional<double> mfu;               // fraction of the device's peak, 0..1
  std::optional<double> tflops_per_gpu;
  std::optional<std::int64_t> peak_bytes;  // of the fullest device
  std::optional<double> validation_loss;
  std::optional<std::int64_t> tokens;  // trained on so far, including those of the run that this one continues
  std::vector<double> epochs;          // of each source of the training data (data/dataset.h), so far; empty for random tokens
};

// Keys in the order of the struct: step, loss, loss_tokens, lr, grad_norm, tokens_per_second, step_ms, data_stalled_ms,
// exposed_comm_ms, from the ledger exposed_dp_ms, exposed_p2p_ms, exposed_tp_ms, hidden_comm_ms, bubble_ms, other_ms,
// compute_ms, and then mfu, tflops_per_gpu, peak_bytes, validation_loss, tokens, epochs (a list). Unknown ones are left out.
nlohmann::ordered_json to_json(const StepMetrics& metrics);

// Writes metrics.jsonl: one JSON object per logged step, in ascending order of "step", each step once. The first line that a
// start of the run writes also has its "environment" (train/report/environment.h).
class MetricsWriter {
 public:
  // A new run: `resumed_step` is nullopt and the file must not exist (ConfigError). A resumed one: lines of steps after
  // `resumed_step`, and a line that a crash left half-written, are cut off once there is a line to write; any other line that
  // is not a JSON object with a "step" is a ConfigError that names file and line.
  MetricsWriter(const std::filesystem::path& path, std::optional<std::int64_t> resumed_step = std::nullopt);

  // `line` has an integer "step" greater than any before it (else InternalError). The line is in the file when this returns.
  void write(const nlohmann::ordered_json& line);

 private:
  std::uint64_t kept_bytes(std::int64_t resumed_step);
  File file_;
  std::optional<std::uint64_t> cut_;  // position of the next line, if that is not the end
  std::optional<std::int64_t> last_step_;
};

}  // namespace plait::train
