#include "train/report/step_metrics.h"

namespace plait::train {

nlohmann::ordered_json to_json(const StepMetrics& metrics) {
  nlohmann::ordered_json line;
  line["step"] = metrics.step;
  line["loss"] = metrics.loss;
  line["loss_tokens"] = metrics.loss_tokens;
  line["lr"] = metrics.learning_rate;
  line["grad_norm"] = metrics.grad_norm;
  line["tokens_per_second"] = metrics.tokens_per_second;
  line["step_ms"] = metrics.step_ms;
  if (metrics.data_stalled_ms) line["data_stalled_ms"] = *metrics.data_stalled_ms;
  if (metrics.exposed_comm_ms) line["exposed_comm_ms"] = *metrics.exposed_comm_ms;
  if (metrics.ledger) {
    const parallel::Ledger& ledger = *metrics.ledger;
    line["exposed_dp_ms"] = ledger.exposed_dp_ms();
    line["exposed_p2p_ms"] = ledger.exposed_p2p_ms();
    line["exposed_tp_ms"] = ledger.exposed_tp_ms();
    line["hidden_comm_ms"] = ledger.hidden_ms();
    line["bubble_ms"] = ledger.bubble_ms;
    line["other_ms"] = ledger.other_ms;
    line["compute_ms"] = ledger.compute_ms;
  }
  if (metrics.mfu) line["mfu"] = *metrics.mfu;
  if (metrics.tflops_per_gpu) line["tflops_per_gpu"] = *metrics.tflops_per_gpu;
  if (metrics.peak_bytes) line["peak_bytes"] = *metrics.peak_bytes;
  if (metrics.validation_loss) line["validation_loss"] = *metrics.validation_loss;
  if (metrics.tokens) line["tokens"] = *metrics.tokens;
  if (!metrics.epochs.empty()) line["epochs"] = metrics.epochs;
  return line;
}

}  // namespace plait::train
