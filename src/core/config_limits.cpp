#include "core/config_limits.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "core/config.h"
#include "core/schedule_file.h"

namespace plait {

namespace {

// 0 where the ranks are not known.
std::int64_t micro_batches(const Config& config, std::int64_t data_parallel) {
  return data_parallel == 0 ? 0 : config.train.global_batch / config.train.micro_batch / data_parallel;
}

std::int64_t segments(const Config& config) { return 2 * config.model.layers + 2; }

}  // namespace

std::string too_many_passes(const Config& config, std::int64_t data_parallel) {
  const std::int64_t micro_batches = plait::micro_batches(config, data_parallel), segments = plait::segments(config);
  if (micro_batches <= limits::passes / segments) return "";
  return fmt::format(
      "makes {} micro-batches on each data-parallel rank, through {} segments (2 * model.layers + 2) each: {} passes in a "
      "step, which must be at most {}; a larger train.micro_batch={} makes fewer",
      micro_batches, segments, micro_batches * segments, limits::passes, config.train.micro_batch);
}

bool has_partners(const Config& config, const MeshSizes& mesh) {
  if (mesh.pipeline == 1) return micro_batches(config, mesh.data) > 1;
  const ScheduleFile* file = config.parallel.schedule == ScheduleKind::file ? config.parallel.schedule_file.get() : nullptr;
  return file != nullptr && std::any_of(file->ranks.begin(), file->ranks.end(), [](const std::vector<StagePass>& passes) {
           return std::any_of(passes.begin(), passes.end(), [](const StagePass& pass) { return pass.braided; });
         });
}

std::string no_ahead(const Config& config, std::int64_t pipeline) {
  if (pipeline > 1) {
    return fmt::format(
        "ahead is for ranks that have all stages, but parallel.pipeline={}, whose ranks begin with several forwards as it is: "
        "take comm.braid=passes",
        pipeline);
  }
  if (config.parallel.schedule == ScheduleKind::file)
    return "ahead changes the order of passes, which parallel.schedule has from a file: change it there, and take "
           "comm.braid=passes";
  return "";
}

std::string no_halves(const Config& config, const MeshSizes& mesh) {
  const std::int64_t half = config.train.micro_batch / 2, others = micro_batches(config, mesh.data);
  if (config.train.micro_batch % 2 != 0) {
    return fmt::format(
        "halves need an even number of sequences, but train.micro_batch={}: take an even one, or comm.braid=passes",
        config.train.micro_batch);
  }
  if (config.parallel.sequence_parallel && half * config.data.sequence_length % mesh.tensor != 0) {
    return fmt::format(
        "parallel.tensor={} does not divide the tokens of half a micro-batch, {} times data.sequence_length={}, "
        "with parallel.sequence_parallel: take a larger train.micro_batch, or comm.braid=passes",
        mesh.tensor, half, config.data.sequence_length);
  }
  if (others > limits::passes / segments(config) / 2) {
    return fmt::format(
        "halves of {} micro-batches through {} segments each make more than {} passes in a step: take a larger "
        "train.micro_batch={}, or comm.braid=passes",
        others, segments(config), limits::passes, config.train.micro_batch);
  }
  return "";
}

}  // namespace plait
