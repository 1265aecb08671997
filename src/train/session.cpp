#include "train/session.h"

#include <spdlog/fmt/fmt.h>

#include <cmath>

#include "train/report/progress.h"

namespace plait::train {

Session::Session(const Config& config, std::int64_t vocab, RankContext& rank) : memory_(rank.device) {
  const parallel::Layout layout = parallel::resolve_layout(config.parallel, rank.size);
  parallel::RankPlan plan = parallel::make_rank_plan(config, vocab, layout, rank.rank, rank.device.kind);
  const parallel::Coordinates at = plan.coordinates();
  data_group_ = comm::make_communicator(
      {.name = fmt::format("data.{}.{}", at.pipeline, at.tensor),
       .rank = at.data,
       .size = layout.data,
       .device = rank.device,
       .timeout = std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(config.comm.timeout_s * 1000))),
       .max_ctas = static_cast<int>(config.comm.max_ctas),
       .host_interface = config.comm.interface},
      *rank.rendezvous);
  rank.on_abort([group = std::weak_ptr(data_group_)] {
    if (const auto alive = group.lock()) alive->abort();
  });
  interpreter_ = std::make_unique<parallel::Interpreter>(std::move(plan), memory_, *data_group_);
}

MemoryReport Session::memory_report() const {
  MemoryReport report;
  report.planned_bytes = plan().memory.total_bytes();
  report.allocated_bytes = memory_.peak_bytes();
  if (memory_.device().is_cuda()) {
    const MemoryInfo info = memory_info(memory_.device());
    report.device_bytes = info.total_bytes - info.free_bytes;
  }
  return report;
}

std::string MemoryReport::to_string() const {
  const auto bytes = [](std::size_t n) { return format_bytes(static_cast<std::int64_t>(n)); };
  std::string text = fmt::format("memory per rank: {} planned, {} allocated", bytes(planned_bytes), bytes(allocated_bytes));
  if (device_bytes > 0) {
    text += fmt::format(", {} in use on the device ({} for CUDA and its libraries)", bytes(device_bytes),
                        bytes(device_bytes - std::min(device_bytes, allocated_bytes)));
  }
  return text;
}

parallel::UpdateSettings update_settings(const Config& config, std::int64_t update, double lr) {
  const OptimizerConfig& o = config.train.optimizer;
  return {.update = update,
          .lr = static_cast<float>(lr),
          .beta1 = static_cast<float>(o.beta1),
          .beta2 = static_cast<float>(o.beta2),
          .epsilon = static_cast<float>(o.epsilon),
          .weight_decay = static_cast<float>(o.weight_decay),
          .clip = static_cast<float>(config.train.clip)};
}

}  // namespace plait::train
