#include "plan/candidate.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/batch_split.h"
#include "core/error.h"
#include "parallel/mesh.h"

namespace plait::plan {
namespace {

constexpr std::size_t most_stages_shown = 8;

// Sizes of a micro-batch, in sequences: the powers of two that divide a data-parallel rank's batch, and the whole batch.
std::vector<std::int64_t> micro_batches(const Config& config, const AxisSizes& mesh) {
  if (!config.train.micro_batch.is_auto()) return {config.train.micro_batch};
  std::vector<std::int64_t> sizes;
  const BatchSplit by_one{config.train.global_batch, 1, product(mesh, batch_axes)};
  if (!by_one.is_whole()) return {1};  // breaks a rule, which then tells why
  const std::int64_t whole = by_one.micro_batches();
  for (std::int64_t size = 1; whole % size == 0; size *= 2) sizes.push_back(size);
  if (sizes.back() != whole) sizes.push_back(whole);
  return sizes;
}

struct Pipelining {
  ScheduleKind schedule;
  std::int64_t virtual_stages;
};

std::vector<Pipelining> pipelinings(const Config& config, std::int64_t pipeline) {
  const ParallelConfig& p = config.parallel;
  std::vector<ScheduleKind> schedules;
  if (!p.schedule.is_auto()) {
    schedules = {p.schedule.value()};
  } else if (pipeline == 1) {
    schedules = {ScheduleKind::one_f_one_b};
  } else {
    for (const ScheduleRow& row : built_in_schedules) {
      if (row.is_candidate) schedules.push_back(row.kind);
    }
  }
  std::vector<Pipelining> all;
  for (const ScheduleKind schedule : schedules) {
    if (!p.virtual_stages.is_auto()) {
      all.push_back({schedule, p.virtual_stages});
    } else if (schedule == ScheduleKind::planned) {
      for (const std::int64_t stages : {1, 2}) all.push_back({schedule, stages});
    } else if (schedule_row(schedule).takes_any_chunks()) {
      for (const std::int64_t stages : {2, 3, 4, 6, 8}) all.push_back({schedule, stages});
    } else {
      all.push_back({schedule, 1});
    }
  }
  return all;
}

// True if a mesh has the given sizes.
bool is_open_to(const AxisArray<Auto<std::int64_t>>& given, const AxisSizes& mesh) {
  return std::ranges::all_of(axis_table,
                             [&](const AxisRow& row) { return given[row.axis].value_or(mesh[row.axis]) == mesh[row.axis]; });
}

}  // namespace

std::string Candidate::layout() const {
  std::string text;
  for (const Name<Axis>& axis : names<Axis>)
    text += fmt::format("{}{} {}", text.empty() ? "" : " × ", axis.text, size[axis.value]);
  return text;
}

std::string Candidate::to_string() const {
  std::string text = layout();
  if (size[stage_axis] > 1) text += ", " + plait::to_string(schedule);
  if (virtual_stages > 1) text += fmt::format(" with {} virtual stages", virtual_stages);
  if (!stages.empty() && stages.size() <= most_stages_shown) text += fmt::format(", {} blocks", fmt::join(stages, " + "));
  text += fmt::format(", micro-batch {}", micro_batch);
  if (zero > 0) text += fmt::format(", zero {}", zero);
  if (recompute != Recompute::none) text += ", recompute " + plait::to_string(recompute);
  return text;
}

Config with(const Config& config, const Candidate& c) {
  Config chosen = config;
  chosen.parallel.size = c.size;
  chosen.parallel.schedule = c.schedule, chosen.parallel.virtual_stages = c.virtual_stages;
  if (c.schedule != ScheduleKind::file) chosen.parallel.schedule_file = nullptr;
  chosen.parallel.zero = c.zero, chosen.parallel.recompute = c.recompute;
  if (!c.stages.empty()) chosen.parallel.stages = c.stages;
  chosen.train.micro_batch = c.micro_batch;
  return chosen;
}

Enumeration enumerate(const Config& config, int ranks) {
  const ParallelConfig& p = config.parallel;
  Enumeration result;
  const auto zeros = p.zero.is_auto() ? std::vector<std::int64_t>{0, 1, 2} : std::vector<std::int64_t>{p.zero};
  std::vector<Recompute> recomputes;
  for (const Name<Recompute>& name : names<Recompute>) {
    if (p.recompute.value_or(name.value) == name.value) recomputes.push_back(name.value);
  }
  for (const AxisSizes& mesh : parallel::meshes_of(ranks, rest_axis)) {
    if (!is_open_to(p.size, mesh)) continue;
    const std::size_t before = result.candidates.size();
    Rejected first;
    for (const Pipelining& pipelining : pipelinings(config, mesh[stage_axis])) {
      for (const std::int64_t micro_batch : micro_batches(config, mesh)) {
        // No rule depends on recompute, so one is judged for all.
        for (const std::int64_t zero : zeros) {
          if (zero > 0 && product(mesh, replica_axes) == 1 && p.zero.is_auto()) continue;  // nothing to shard
          Candidate c{mesh, micro_batch, pipelining.virtual_stages, zero, pipelining.schedule, recomputes.front()};
          Config chosen = with(config, c);
          chosen.launch.ranks = ranks;
          if (const auto problems = problems_of(chosen); !problems.empty()) {
            if (first.reason.empty())
              first = {c, problems.front().path + " = " + problems.front().value + " " + problems.front().rule};
            continue;
          }
          for (const Recompute recompute : recomputes) {
            c.recompute = recompute;
            result.candidates.push_back(c);
          }
        }
      }
    }
    if (result.candidates.size() == before) result.rejected.push_back(std::move(first));
  }
  return result;
}

}  // namespace plait::plan
