// Any mix of tensor, pipeline and data parallelism computes what one rank would.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "config/schedule_files.h"
#include "parallel/schedule_kinds.h"
#include "runtime/quiet_steps.h"
#include "runtime/rank_threads.h"

namespace plait::runtime {
namespace {

struct LayoutCase {
  bool llama = false;
  int pipeline = 1, data = 1, tensor = 1;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int virtual_stages = 1, zero = 0;
  bool sequence_parallel = true, overlap = true;
  Recompute recompute = Recompute::none;
  Auto<CollectiveWay> exchanges = {};
  Documents documents = Documents::joined;  // separate: with windows in some of the layers
  bool qk_norm = false;
  Auto<CollectiveWay> reductions = {};

  int ranks() const { return pipeline * data * tensor; }
  std::string name() const {
    std::string text = (llama ? "llama_p" : "gpt_p") + std::to_string(pipeline) + "_d" + std::to_string(data) + "_t" +
                       std::to_string(tensor) + "_" + to_string(schedule) + "_v" + std::to_string(virtual_stages) + "_zero" +
                       std::to_string(zero) + "_" + to_string(recompute);
    if (!sequence_parallel) text += "_nosp";
    if (!overlap) text += "_nooverlap";
    if (documents == Documents::separate) text += "_documents";
    if (!exchanges.is_auto()) text += "_" + to_string(exchanges.value());
    if (qk_norm) text += "_qknorm";
    if (!reductions.is_auto()) text += "_reductions_" + to_string(reductions.value());
    for (char& c : text) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
    return text;
  }
};

Config config_of(const LayoutCase& c) {
  Config config;
  config.model.layers = 6, config.model.hidden = 64, config.model.heads = 8, config.model.vocab = 150, config.model.ffn = 128;
  if (c.llama) make_llama(config.model, 4);
  config.data.documents = c.documents;
  if (c.documents == Documents::separate) config.model.window = 3, config.model.window_layers = {1, 2, 5};
  config.model.qk_norm = c.qk_norm;
  config.data.sequence_length = 16;
  config.train.steps = 3, config.train.global_batch = 8, config.train.micro_batch = 1, config.train.clip = 0.5;
  config.comm.bucket_mb = 0.02;
  config.comm.overlap = c.overlap, config.comm.exchanges = c.exchanges, config.comm.reductions = c.reductions;
  config.parallel.size[Axis::pipeline] = c.pipeline, config.parallel.size[Axis::data] = c.data,
  config.parallel.size[Axis::tensor] = c.tensor;
  config.parallel.schedule = c.schedule, config.parallel.virtual_stages = c.virtual_stages, config.parallel.zero = c.zero;
  config.parallel.sequence_parallel = c.sequence_parallel, config.parallel.recompute = c.recompute;
  return config;
}

// One rank's run, once per device kind, model and precision.
const JobResult& serial(const LayoutCase& c, DeviceKind kind, const std::string& compute) {
  static std::map<std::tuple<bool, bool, Documents, DeviceKind, std::string>, JobResult> results;
  const auto [it, fresh] = results.try_emplace({c.llama, c.qk_norm, c.documents, kind, compute});
  if (fresh) {
    Config config = config_of({.llama = c.llama, .documents = c.documents, .qk_norm = c.qk_norm});
    config.precision.compute = compute;
    it->second = run_job(config, 1, kind);
  }
  return it->second;
}

class Layouts : public testing::TestWithParam<LayoutCase> {};

TEST_P(Layouts, GiveTheSerialRunsLossesAndParameters) {
  const LayoutCase& c = GetParam();
  expect_close(run_job(config_of(c), c.ranks(), DeviceKind::host), serial(c, DeviceKind::host, "auto"), 1e-5f, 1e-4f,
               same_parameters);
}

// No bit changes with the order of segments, or with what hides behind what.
TEST(BraidedLayouts, BraidsAndOverlapChangeNoBit) {
  for (const bool llama : {false, true}) {
    LayoutCase c{.llama = llama, .tensor = 2, .sequence_parallel = llama};
    if (llama) c.exchanges = CollectiveWay::links;
    if (llama) c.recompute = Recompute::selective;
    Config config = config_of(c);
    const JobResult braided = run_job(config, c.ranks(), DeviceKind::host);
    config.comm.braid = Braid::none;
    expect_same_bits(braided, run_job(config, c.ranks(), DeviceKind::host));
    config.comm.overlap = false;
    expect_same_bits(braided, run_job(config, c.ranks(), DeviceKind::host));
    config.comm.braid = Braid::passes;
    expect_same_bits(braided, run_job(config, c.ranks(), DeviceKind::host));
    for (const bool overlap : {false, true}) {
      config.comm.braid = Braid::ahead, config.comm.overlap = overlap;
      expect_same_bits(braided, run_job(config, c.ranks(), DeviceKind::host));
    }
  }
}

// Two addends have one sum, so anything that goes another way, the scales of FP8 weights included, would show.
TEST(CollectivesByLinks, OfTwoRanksGiveTheLibrarysBits) {
  for (const bool fp8 : {false, true}) {
    for (const auto& [data, tensor, zero] : {std::tuple{1, 2, 0}, {2, 1, 0}, {2, 1, 1}, {2, 1, 2}, {2, 2, 2}}) {
      Config config = config_of({.llama = true, .data = data, .tensor = tensor, .zero = zero});
      config.model.layers = 2, config.train.steps = 2;
      if (fp8) config.precision.matmul = MatmulType::fp8;
      config.comm.exchanges = config.comm.reductions = CollectiveWay::library;
      const JobResult library = run_job(config, data * tensor, DeviceKind::host);
      config.comm.exchanges = config.comm.reductions = CollectiveWay::links;
      SCOPED_TRACE("fp8 " + std::to_string(fp8) + ", data " + std::to_string(data) + ", tensor " + std::to_string(tensor) +
                   ", zero " + std::to_string(zero));
      expect_same_bits(library, run_job(config, data * tensor, DeviceKind::host));
    }
  }
}

// Sums by links are taken in the order of the ranks, whatever they run beside and however they are cut.
TEST(ReductionsByLinks, OverlapAndShardingChangeNoBit) {
  for (const bool llama : {false, true}) {
    Config config = config_of({.llama = llama, .data = 4, .reductions = CollectiveWay::links});
    const JobResult whole = run_job(config, 4, DeviceKind::host);
    config.comm.overlap = false;
    expect_same_bits(whole, run_job(config, 4, DeviceKind::host));
    config.parallel.zero = 1;
    const JobResult sharded = run_job(config, 4, DeviceKind::host);
    expect_close(sharded, whole, 1e-6f, 1e-5f, same_parameters);
    config.comm.overlap = true;
    expect_same_bits(sharded, run_job(config, 4, DeviceKind::host));
  }
}

// Trains in halves, overlapping and not, and as one rank.
void expect_halves_give_the_serial_runs_losses(const LayoutCase& c) {
  SCOPED_TRACE(c.name());
  Config config = config_of(c);
  config.comm.braid = Braid::halves;
  config.train.micro_batch = c.pipeline == 1 ? 8 : 2;
  const JobResult halves = run_job(config, c.ranks(), DeviceKind::host);
  expect_close(halves, serial(c, DeviceKind::host, "auto"), 1e-5f, 1e-4f, same_parameters);
  config.comm.overlap = false;
  expect_same_bits(halves, run_job(config, c.ranks(), DeviceKind::host));
}

// This includes a single micro-batch on one rank of a pipeline.
TEST(BraidedLayouts, HalvesGiveTheSerialRunsLossesAndOverlapChangesNoBitOfThem) {
  for (const LayoutCase& c : std::initializer_list<LayoutCase>{
           {.llama = true, .tensor = 2},
           {.pipeline = 2, .data = 2, .tensor = 2, .zero = 2},
           {.pipeline = 2, .tensor = 2, .recompute = Recompute::full, .exchanges = CollectiveWay::links},
           {.llama = true, .pipeline = 2, .tensor = 2, .documents = Documents::separate}}) {
    expect_halves_give_the_serial_runs_losses(c);
  }
}

TEST(BraidedLayouts, HalvesOfEveryScheduleGiveTheSerialRunsLosses) {
  for (const ScheduleKind kind : parallel::built_in_kinds()) {
    expect_halves_give_the_serial_runs_losses(
        {.pipeline = 2, .tensor = 2, .schedule = kind, .virtual_stages = parallel::some_virtual_stages(kind)});
  }
}

// The schedule is a file's, with messages between the ranks of a pair.
TEST(BraidedLayouts, PairsOfAScheduleFileGiveTheSerialRunsLosses) {
  LayoutCase c{.pipeline = 2, .tensor = 2};
  Config config = config_of(c);
  config.parallel.schedule = ScheduleKind::file;
  config.parallel.schedule_file = real_schedule("ScheduleDualPipeV-pp2-m8");
  const JobResult braided = run_job(config, c.ranks(), DeviceKind::host);
  expect_close(braided, serial(c, DeviceKind::host, "auto"), 1e-5f, 1e-4f, same_parameters);
  config.comm.braid = Braid::none;
  expect_same_bits(braided, run_job(config, c.ranks(), DeviceKind::host));
  config.comm.braid = Braid::passes, config.comm.overlap = false;
  expect_same_bits(braided, run_job(config, c.ranks(), DeviceKind::host));
}

// A stage in the middle needs the batch too.
TEST(LayoutsWithDocuments, AStageThatSeesOtherDocumentsIsNoticed) {
  struct Joined final : BatchSource {
    explicit Joined(BatchSource& inner, std::int64_t rows) : batches(inner), zeros(static_cast<std::size_t>(rows)) {}
    HostBatch next() override {
      const HostBatch batch = batches.next();
      return {batch.tokens, batch.targets, zeros.data()};
    }
    void release(StreamRef stream) override { batches.release(stream); }
    BatchSource& batches;
    std::vector<std::int32_t> zeros;
  };
  const LayoutCase c{.llama = true, .pipeline = 4, .documents = Documents::separate};
  const JobResult& expected = serial(c, DeviceKind::host, "auto");
  for (const int wrong : {-1, 1}) {
    float loss = 0;
    run_ranks(config_of(c), c.ranks(), DeviceKind::host, [&](Interpreter& interpreter, SyntheticBatches& batches) {
      const parallel::RankPlan& plan = interpreter.plan();
      Joined joined(batches, plan.sizes.micro_batch.rows());
      interpreter.run_step(plan.rank == wrong ? static_cast<BatchSource&>(joined) : batches, {.update = 1, .lr = 1e-3f});
      const StepResult result = interpreter.synchronize_result();
      if (plan.rank == 0) loss = result.loss;
    });
    const float difference = std::abs(loss - expected.losses.front());
    if (wrong < 0) {
      EXPECT_LT(difference, 1e-5f);
    } else {
      EXPECT_GT(difference, 1e-4f);
    }
  }
}

class GpuLayouts : public testing::TestWithParam<LayoutCase> {
 protected:
  void SetUp() override {
    std::string why;
    if (cuda_device_count(&why) == 0) GTEST_SKIP() << why;
  }
};

TEST_P(GpuLayouts, GiveTheSerialRunsLossesAndParameters) {
  const LayoutCase& c = GetParam();
  Config config = config_of(c);
  config.precision.deterministic = true;
  config.precision.compute = "fp32";
  expect_close(run_job(config, c.ranks(), DeviceKind::cuda), serial(c, DeviceKind::cuda, "fp32"), 1e-5f, 1e-4f,
               same_parameters);
  // bf16 keeps 8 bits of every partial sum that ranks add up. Adam moves a parameter by up to the learning rate, 1e-3, per
  // update whatever the size of its gradient, so only the sum of all updates bounds a difference.
  config.precision.compute = "bf16";
  expect_close(run_job(config, c.ranks(), DeviceKind::cuda), serial(c, DeviceKind::cuda, "bf16"), 4e-3f, 3e-2f, 6e-3);
}

TEST_P(GpuLayouts, AStepNeitherSynchronizesTheHostNorAllocates) {
  if (cuda_device_count() < GetParam().ranks()) GTEST_SKIP() << "ranks that share a GPU make events as they go";
  Config config = config_of(GetParam());
  config.precision.compute = "bf16";
  expect_quiet_steps(config, GetParam().ranks());
}

std::vector<LayoutCase> cases() {
  std::vector<LayoutCase> list;
  for (const bool llama : {false, true}) {
    for (const bool sp : {true, false}) {
      list.push_back({.llama = llama, .tensor = 2, .sequence_parallel = sp});
      list.push_back({.llama = llama, .tensor = 4, .sequence_parallel = sp});
    }
    for (const ScheduleKind schedule : parallel::built_in_kinds()) {
      const int v = parallel::some_virtual_stages(schedule);
      list.push_back({.llama = llama, .pipeline = 2, .schedule = schedule, .virtual_stages = v});
      list.push_back({.llama = llama, .pipeline = 4, .schedule = schedule, .virtual_stages = v});
      list.push_back({.llama = llama, .pipeline = 2, .schedule = schedule, .virtual_stages = v, .recompute = Recompute::full});
      list.push_back({.llama = llama, .pipeline = 2, .schedule = schedule, .virtual_stages = v, .overlap = false});
      list.push_back(
          {.llama = llama, .pipeline = 2, .data = 2, .tensor = 2, .schedule = schedule, .virtual_stages = v, .zero = 1});
    }
    list.push_back({.llama = llama, .data = 2, .tensor = 2, .zero = 2, .recompute = Recompute::selective});
    list.push_back({.llama = llama, .tensor = 4, .sequence_parallel = !llama, .exchanges = CollectiveWay::links});
    list.push_back({.llama = llama,
                    .pipeline = 2,
                    .tensor = 2,
                    .schedule = ScheduleKind::zb_v,
                    .sequence_parallel = llama,
                    .recompute = Recompute::full,
                    .exchanges = CollectiveWay::links});
    list.push_back({.llama = llama, .data = 4, .zero = 2});
    for (const int zero : {0, 1, 2}) {
      list.push_back({.llama = llama, .data = 4, .zero = zero, .reductions = CollectiveWay::links});
      list.push_back({.llama = llama,
                      .pipeline = 2,
                      .data = 2,
                      .tensor = 2,
                      .schedule = zero == 0 ? ScheduleKind::zb_v : ScheduleKind::one_f_one_b,
                      .zero = zero,
                      .overlap = zero != 1,
                      .exchanges = llama ? CollectiveWay::links : CollectiveWay::library,
                      .reductions = CollectiveWay::links});
    }
    list.push_back({.llama = llama, .pipeline = 2, .data = 2, .tensor = 2, .zero = 2});
    list.push_back(
        {.llama = llama, .pipeline = 2, .data = 2, .schedule = ScheduleKind::interleaved, .virtual_stages = 2, .zero = 2});
    list.push_back({.llama = llama, .pipeline = 2, .data = 4, .schedule = ScheduleKind::gpipe, .zero = 2, .overlap = false});
    list.push_back({.llama = llama, .pipeline = 8, .schedule = ScheduleKind::one_f_one_b});
    constexpr Documents separate = Documents::separate;
    list.push_back({.llama = llama, .pipeline = 2, .tensor = 2, .documents = separate});
    list.push_back({.llama = llama,
                    .pipeline = 4,
                    .schedule = ScheduleKind::one_f_one_b,
                    .recompute = llama ? Recompute::full : Recompute::none,
                    .documents = separate});
    list.push_back({.llama = llama,
                    .pipeline = 2,
                    .schedule = llama ? ScheduleKind::zb_v : ScheduleKind::interleaved,
                    .virtual_stages = 2,
                    .documents = separate});
  }
  for (const bool sp : {true, false}) list.push_back({.llama = true, .tensor = 2, .sequence_parallel = sp, .qk_norm = true});
  list.push_back(
      {.llama = true, .pipeline = 2, .schedule = ScheduleKind::zb_h1, .recompute = Recompute::full, .qk_norm = true});
  list.push_back(
      {.llama = true, .pipeline = 2, .tensor = 2, .schedule = ScheduleKind::zb_v, .sequence_parallel = false, .qk_norm = true});
  list.push_back({.llama = true, .data = 2, .tensor = 2, .zero = 2, .recompute = Recompute::selective, .qk_norm = true});
  return list;
}

// Every kind of layout once: NCCL takes a second or two to make a job's groups.
std::vector<LayoutCase> gpu_cases() {
  return {{.tensor = 2},
          {.tensor = 2, .exchanges = CollectiveWay::links},
          {.llama = true, .tensor = 2, .sequence_parallel = false, .exchanges = CollectiveWay::library},
          {.llama = true, .tensor = 4},
          {.llama = true, .tensor = 2, .sequence_parallel = false, .recompute = Recompute::selective, .qk_norm = true},
          {.tensor = 4, .sequence_parallel = false},
          {.llama = true, .pipeline = 2, .schedule = ScheduleKind::gpipe},
          {.pipeline = 4, .schedule = ScheduleKind::one_f_one_b},
          {.llama = true, .pipeline = 2, .schedule = ScheduleKind::interleaved, .virtual_stages = 2},
          {.pipeline = 4, .schedule = ScheduleKind::zb_h1, .recompute = Recompute::full},
          {.llama = true, .pipeline = 4, .schedule = ScheduleKind::zb_v},
          {.pipeline = 2, .schedule = ScheduleKind::zb_v, .overlap = false},
          {.pipeline = 2, .tensor = 2, .schedule = ScheduleKind::zb_h1},
          {.llama = true, .pipeline = 2, .data = 2, .schedule = ScheduleKind::zb_v, .zero = 1},
          {.data = 2, .tensor = 2, .zero = 2, .recompute = Recompute::selective},
          {.llama = true, .data = 4, .zero = 2},
          {.data = 2, .reductions = CollectiveWay::links},
          {.llama = true, .data = 2, .zero = 2, .reductions = CollectiveWay::links},
          {.data = 4, .zero = 1, .reductions = CollectiveWay::links},
          {.llama = true, .pipeline = 2, .data = 2, .schedule = ScheduleKind::zb_v, .reductions = CollectiveWay::links},
          {.pipeline = 2, .data = 2, .schedule = ScheduleKind::interleaved, .virtual_stages = 2, .zero = 2},
          {.llama = true, .pipeline = 2, .tensor = 2, .documents = Documents::separate},
          {.pipeline = 4, .recompute = Recompute::full, .documents = Documents::separate}};
}

INSTANTIATE_TEST_SUITE_P(Cpu, Layouts, testing::ValuesIn(cases()), [](const auto& layout) { return layout.param.name(); });

INSTANTIATE_TEST_SUITE_P(Cuda, GpuLayouts, testing::ValuesIn(gpu_cases()),
                         [](const auto& layout) { return layout.param.name(); });

}  // namespace
}  // namespace plait::runtime
