#include "train/report/step_metrics.h"

#include <fstream>
#include <string>
#include <utility>

#include "core/error.h"

namespace plait::train {
namespace {

std::optional<std::int64_t> step_in(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return std::nullopt;
  return json["step"].get<std::int64_t>();
}

}  // namespace

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

MetricsWriter::MetricsWriter(const std::filesystem::path& path, std::optional<std::int64_t> resumed_step)
    : file_(File::open_append(path)) {
  if (resumed_step) {
    cut_ = kept_bytes(*resumed_step);
  } else if (file_.size() > 0) {
    throw ConfigError(path.string() +
                      " exists already: choose another run.name or run.dir, or continue that run with --resume");
  }
}

std::uint64_t MetricsWriter::kept_bytes(std::int64_t resumed_step) {
  std::ifstream in(file_.path(), std::ios::binary);
  std::string line;
  std::uint64_t kept = 0;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    if (in.eof()) break;  // no newline at the end: torn by a crash
    const auto step = step_in(line);
    if (!step) {
      throw ConfigError(file_.path().string() + ", line " + std::to_string(number) +
                        ": not a JSON object with an integer \"step\": take that line away");
    }
    if (*step > resumed_step) break;
    last_step_ = *step;
    kept += line.size() + 1;
  }
  if (in.bad()) throw ConfigError("cannot read " + file_.path().string());
  return kept;
}

void MetricsWriter::write(const nlohmann::ordered_json& line) {
  const auto step = line.at("step").get<std::int64_t>();
  require(!last_step_ || step > *last_step_,
          "metrics of step " + std::to_string(step) + " after those of step " + std::to_string(last_step_.value_or(0)));
  if (cut_) file_.truncate(*std::exchange(cut_, std::nullopt));
  file_.append(line.dump() + "\n");
  last_step_ = step;
}

}  // namespace plait::train
