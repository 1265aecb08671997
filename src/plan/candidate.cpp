#include "plan/candidate.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/error.h"

namespace plait::plan {
namespace {

constexpr std::size_t most_stages_shown = 8;

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> all;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    all.push_back(d);
    if (d * d != n) all.push_back(n / d);
  }
  std::sort(all.begin(), all.end());
  return all;
}

// Sequences of a micro-batch: powers of two that divide what a data-parallel rank has, and all of that.
std::vector<std::int64_t> micro_batches(const Config& config, std::int64_t data) {
  if (config.train.micro_batch > 0) return {config.train.micro_batch};
  std::vector<std::int64_t> sizes;
  if (config.train.global_batch % data != 0) return {1};  // breaks a rule, which then tells why
  const std::int64_t whole = config.train.global_batch / data;
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
  if (p.schedule) {
    schedules = {*p.schedule};
  } else if (pipeline == 1) {
    schedules = {ScheduleKind::one_f_one_b};
  } else {
    for (const ScheduleRow& row : built_in_schedules) {
      if (row.is_candidate) schedules.push_back(row.kind);
    }
  }
  std::vector<Pipelining> all;
  for (const ScheduleKind schedule : schedules) {
    if (p.virtual_stages > 0) {
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

}  // namespace

std::string Candidate::layout() const { return fmt::format("pipeline {} × data {} × tensor {}", pipeline, data, tensor); }

std::string Candidate::to_string() const {
  std::string text = layout();
  if (pipeline > 1) text += ", " + plait::to_string(schedule);
  if (virtual_stages > 1) text += fmt::format(" with {} virtual stages", virtual_stages);
  if (!stages.empty() && stages.size() <= most_stages_shown) text += fmt::format(", {} blocks", fmt::join(stages, " + "));
  text += fmt::format(", micro-batch {}", micro_batch);
  if (zero > 0) text += fmt::format(", zero {}", zero);
  if (recompute != Recompute::none) text += ", recompute " + plait::to_string(recompute);
  return text;
}

Config with(const Config& config, const Candidate& c) {
  Config chosen = config;
  chosen.parallel.data = c.data, chosen.parallel.tensor = c.tensor, chosen.parallel.pipeline = c.pipeline;
  chosen.parallel.schedule = c.schedule, chosen.parallel.virtual_stages = c.virtual_stages;
  if (c.schedule != ScheduleKind::file) chosen.parallel.schedule_file = nullptr;
  if (c.schedule != ScheduleKind::planned) chosen.parallel.planned_passes = nullptr;
  chosen.parallel.zero = c.zero, chosen.parallel.recompute = c.recompute;
  if (!c.stages.empty()) chosen.parallel.stages = c.stages;
  chosen.train.micro_batch = c.micro_batch;
  return chosen;
}

Enumeration enumerate(const Config& config, int ranks) {
  const ParallelConfig& p = config.parallel;
  Enumeration result;
  const auto zeros = p.zero >= 0 ? std::vector<std::int64_t>{p.zero} : std::vector<std::int64_t>{0, 1, 2};
  std::vector<Recompute> recomputes;
  for (const Name<Recompute>& name : names<Recompute>) {
    if (p.recompute.value_or(name.value) == name.value) recomputes.push_back(name.value);
  }
  for (const std::int64_t pipeline : divisors(ranks)) {
    if (p.pipeline > 0 && p.pipeline != pipeline) continue;
    for (const std::int64_t tensor : divisors(ranks / pipeline)) {
      const std::int64_t data = ranks / pipeline / tensor;
      if ((p.tensor > 0 && p.tensor != tensor) || (p.data > 0 && p.data != data)) continue;
      std::size_t before = result.candidates.size();
      Rejected first;
      for (const Pipelining& pipelining : pipelinings(config, pipeline)) {
        for (const std::int64_t micro_batch : micro_batches(config, data)) {
          // The rules do not tell zero and recompute apart but for what they forbid together: judged once for all recomputes.
          for (const std::int64_t zero : zeros) {
            if (zero > 0 && data == 1 && p.zero < 0) continue;  // nothing to shard
            Candidate c{
                data, tensor, pipeline, micro_batch, pipelining.virtual_stages, zero, pipelining.schedule, recomputes.front()};
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
  }
  return result;
}

}  // namespace plait::plan
