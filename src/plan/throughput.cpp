#include "plan/throughput.h"

#include <spdlog/fmt/fmt.h>

#include <chrono>
#include <cmath>

#include "core/format.h"
#include "core/units.h"
#include "model/model_flops.h"

namespace plait::plan {

Throughput throughput_of(const PlannedJob& job, const Machine& machine) {
  const parallel::RankPlan& plan = job.stages.front();
  const auto tokens = static_cast<double>(plan.tokens_per_step());
  const model::FlopTerms terms = model::flop_terms(plan.sizes.shape, plan.sequence_length);
  const double flops = model::model_flops_per_token(terms);
  const double given = job.config.log.peak_tflops.value_or(0) * tera;
  double peak = given > 0 ? given : topology::peak_matrix_flops(machine.profile, plan.sizes.compute);
  const double products = topology::peak_matrix_flops(machine.profile, DType::e4m3);
  if (given == 0 && plan.sizes.fp8 && peak > 0 && products > 0) peak = model::mixed_peak_flops(terms, products, peak);
  const auto ranks = static_cast<double>(plan.layout.ranks());
  Throughput result{.tokens_per_second = tokens / job.best.step_seconds, .mfu = {}, .steps = job.config.train.steps};
  result.flops_per_device = flops * result.tokens_per_second / ranks;
  if (peak > 0) result.mfu = model::model_flops_utilization(flops, result.tokens_per_second, plan.layout.ranks(), peak);
  result.tokens = static_cast<double>(result.steps) * tokens;
  result.run_seconds = static_cast<double>(result.steps) * job.best.step_seconds;
  result.device_hours = ranks * result.run_seconds / 3600;
  return result;
}

std::string speed_text(const Throughput& throughput, const std::string& unit) {
  const double tflops = throughput.flops_per_device / tera;
  std::string text = fmt::format("speed: {} tokens/s, {:.{}f} TFLOP/s per {}", format_count(throughput.tokens_per_second),
                                 tflops, tflops < 1 ? 4 : 1, unit);
  if (throughput.mfu) text += fmt::format(", MFU {:.1f} %", 100 * *throughput.mfu);
  return text;
}

std::string run_text(const Throughput& throughput, const std::string& unit) {
  return fmt::format("the run: {} steps, {} tokens: {}, {} {}-hours", throughput.steps, format_count(throughput.tokens),
                     format_duration(std::chrono::seconds(std::llround(throughput.run_seconds))),
                     format_count(throughput.device_hours), unit);
}

}  // namespace plait::plan
