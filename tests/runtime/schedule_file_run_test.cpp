// Schedules from files compute what the serial run does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "parallel/file_schedules.h"
#include "parallel/program_sets.h"
#include "runtime/rank_threads.h"

namespace plait::runtime {
namespace {

using parallel::spec_of;
using Passes = parallel::Passes;

struct FileJob {
  int data = 1, tensor = 1, zero = 0;
  bool tied = true, overlap = true;
  Recompute recompute = Recompute::none;
};

Config config_of(const FileJob& job, int micro_batches) {
  Config config;
  config.model.layers = 6, config.model.hidden = 16, config.model.heads = 2, config.model.vocab = 50, config.model.ffn = 32;
  config.model.tie_embeddings = job.tied;
  config.data.sequence_length = 8;
  config.train.steps = 2, config.train.micro_batch = 1, config.train.clip = 0.5;
  config.train.global_batch = micro_batches * job.data;
  config.comm.bucket_mb = 0.005, config.comm.overlap = job.overlap;
  return config;
}

const JobResult& serial(const FileJob& job, int micro_batches) {
  static std::map<std::pair<bool, std::int64_t>, JobResult> results;
  Config config = config_of(job, micro_batches);
  const auto [it, fresh] = results.try_emplace({job.tied, config.train.global_batch});
  if (fresh) it->second = run_job(config, 1, DeviceKind::host);
  return it->second;
}

void expect_the_serial_result(const std::shared_ptr<const ScheduleFile>& file, const FileJob& job = {}) {
  Config config = config_of(job, file->micro_batches);
  config.parallel.size[Axis::pipeline] = std::ssize(file->ranks), config.parallel.size[Axis::data] = job.data,
  config.parallel.size[Axis::tensor] = job.tensor;
  config.parallel.zero = job.zero, config.parallel.recompute = job.recompute;
  config.parallel.schedule = ScheduleKind::file, config.parallel.schedule_file = file;
  const int ranks = static_cast<int>(config.parallel.size[Axis::pipeline]) * job.data * job.tensor;
  expect_close(run_job(config, ranks, DeviceKind::host), serial(job, file->micro_batches), 1e-5f, 1e-4f, same_parameters);
}

class RealScheduleRun : public testing::TestWithParam<std::string> {};

TEST_P(RealScheduleRun, ComputesWhatTheSerialRunDoes) {
  const auto file = real_schedule(GetParam());
  expect_the_serial_result(file);
  expect_the_serial_result(file, {.tied = false, .overlap = false, .recompute = Recompute::full});
  if (file->ranks.size() > 2) return;  // the other axes are tried only with few ranks
  expect_the_serial_result(file, {.data = 2, .zero = file->splits_backward ? 1 : 2});
  expect_the_serial_result(file, {.tensor = 2});
}

INSTANTIATE_TEST_SUITE_P(All, RealScheduleRun, testing::ValuesIn(real_schedules), [](const auto& parameter) {
  std::string name = parameter.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(ScheduleFileRun, RandomOnesComputeWhatTheSerialRunDoes) {
  std::mt19937 random(3);
  for (int round = 0; round < 8; ++round) {
    const Passes passes = parallel::random_passes(random);
    const auto file = parsed_schedule(schedule_csv(passes));
    if (file->rank_of_stage.size() > 8) continue;
    SCOPED_TRACE(file->text);
    expect_the_serial_result(file);
  }
}

// Makes one change to a valid schedule: a pass is dropped, doubled or moved to another rank, or two are swapped.
Passes mutated(Passes passes, std::mt19937& random) {
  const auto pick = [&](std::size_t n) { return static_cast<std::ptrdiff_t>(random() % n); };
  std::vector<StagePass>& of_rank = passes[static_cast<std::size_t>(pick(passes.size()))];
  const auto at = of_rank.begin() + pick(of_rank.size());
  switch (random() % 4) {
    case 0: of_rank.erase(at); break;
    case 1: of_rank.insert(of_rank.begin() + pick(of_rank.size()), StagePass(*at)); break;
    case 2: {
      const StagePass moved = *at;
      of_rank.erase(at);
      std::vector<StagePass>& other = passes[static_cast<std::size_t>(pick(passes.size()))];
      other.insert(other.begin() + pick(other.size()), moved);
      break;
    }
    // Near passes are swapped: such schedules more often still run.
    default:
      std::iter_swap(at,
                     of_rank.begin() + std::min<std::ptrdiff_t>(at - of_rank.begin() + 1 + pick(3), std::ssize(of_rank) - 1));
  }
  return passes;
}

TEST(ScheduleFileRun, AChangedOneIsRefusedOrComputesTheSame) {
  std::mt19937 random(11);
  int refused = 0, run = 0;
  for (int n = 0; n < 100; ++n) {
    const bool is_v = n % 2 == 0;
    const Passes valid =
        parallel::stage_passes(parallel::make_schedule({is_v ? ScheduleKind::zb_v : ScheduleKind::interleaved, 2, 2, 4}));
    const std::string text = schedule_csv(mutated(valid, random));
    SCOPED_TRACE(text);
    std::string problem;
    const auto file = parse_schedule(text, "changed.csv", problem);
    if (!file) {
      EXPECT_THAT(problem,
                  testing::ContainsRegex(
                      "^cannot run: rank [01](, position [0-9]+ \\([0-9]+[FBIW][0-9]+\\)|: up to its last position, [0-9]+)"));
      ++refused;
      continue;
    }
    ASSERT_EQ(parallel::first_problem(parallel::make_set({.schedule = spec_of(file)})), "");
    expect_the_serial_result(file);
    ++run;
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(run, 15);
}

}  // namespace
}  // namespace plait::runtime
