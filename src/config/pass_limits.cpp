#include "core/limits.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "config/config.h"
#include "config/pass_limits.h"
#include "config/schedule_file.h"
#include "core/batch_split.h"

namespace plait {

namespace {

std::int64_t segments(const Config& config) { return 2 * config.model.layers + 2; }

}  // namespace

std::string too_many_passes(const Config& config, const AxisSizes& sizes) {
  const std::int64_t micro_batches = batch_split(config, sizes).micro_batches(), segments = plait::segments(config);
  if (micro_batches <= limits::passes / segments) return "";
  return fmt::format(
      "makes {} micro-batches on each data-parallel rank, through {} segments (2 * model.layers + 2) each: {} passes in a "
      "step, which must be at most {}; a larger train.micro_batch={} makes fewer",
      micro_batches, segments, micro_batches * segments, limits::passes, config.train.micro_batch);
}

bool has_partners(const Config& config, const AxisSizes& sizes) {
  if (sizes[stage_axis] == 1) return batch_split(config, sizes).micro_batches() > 1;
  const ScheduleFile* file = config.parallel.schedule == ScheduleKind::file ? config.parallel.schedule_file.get() : nullptr;
  return file != nullptr && std::any_of(file->ranks.begin(), file->ranks.end(), [](const std::vector<StagePass>& passes) {
           return std::any_of(passes.begin(), passes.end(), [](const StagePass& pass) { return pass.braided; });
         });
}

std::string no_ahead(const Config& config, std::int64_t pipeline_ranks) {
  if (pipeline_ranks > 1) {
    return fmt::format(
        "ahead is for ranks that have all stages, but {}={}, whose ranks begin with several forwards as it is: "
        "take comm.braid=passes",
        axis_key(stage_axis), pipeline_ranks);
  }
  if (config.parallel.schedule == ScheduleKind::file)
    return "ahead changes the order of passes, which parallel.schedule has from a file: change it there, and take "
           "comm.braid=passes";
  return "";
}

std::string no_halves(const Config& config, const AxisSizes& sizes) {
  const std::int64_t half = config.train.micro_batch / 2, others = batch_split(config, sizes).micro_batches();
  if (config.train.micro_batch % 2 != 0) {
    return fmt::format(
        "halves need an even number of sequences, but train.micro_batch={}: take an even one, or comm.braid=passes",
        config.train.micro_batch);
  }
  if (config.parallel.sequence_parallel && half * config.data.sequence_length % sizes[segment_axis] != 0) {
    return fmt::format(
        "{}={} does not divide the tokens of half a micro-batch, {} times data.sequence_length={}, "
        "with parallel.sequence_parallel: take a larger train.micro_batch, or comm.braid=passes",
        axis_key(segment_axis), sizes[segment_axis], half, config.data.sequence_length);
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
