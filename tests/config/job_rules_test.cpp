// Rules over facts of which some are not known.
#include "config/job_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>

#include "config/config.h"
#include "config/schedule_files.h"

namespace plait {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

// One of many jobs, with all facts known: most break a rule or two.
JobFacts any_job(std::mt19937& random, const ScheduleFile& file) {
  const auto any_of = [&](const auto&... values) {
    const std::array list{values...};
    return list[random() % list.size()];
  };
  JobFacts f;
  for (const AxisRow& row : axis_table) f.size[row.axis] = any_of(1, 2, 3, 4);
  f.ranks = any_of(product(f.size), product(f.size), std::int64_t{12});
  f.device = any_of(DeviceKind::host, DeviceKind::cuda);
  f.compute = any_of(DType::bf16, DType::f32, DType::f64);
  f.gradients = any_of(DType::bf16, DType::f32);
  f.matmul = any_of(MatmulType::bf16, MatmulType::fp8);
  f.layers = any_of(1, 2, 4096), f.heads = any_of(8, 12), f.kv_heads = any_of(2, 8), f.ffn = any_of(64, 65);
  f.vocab = any_of(200, 256), f.tokenizer_vocab = any_of(100, 256);
  f.position = any_of(Position::learned, Position::rope), f.max_sequence = any_of(16, 64), f.sequence = any_of(15, 32);
  f.global_batch = any_of(12, 24, 96, 98304), f.micro_batch = any_of(1, 2, 3);
  f.sequence_parallel = any_of(true, false);
  f.schedule = any_of(ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zb_v, ScheduleKind::file);
  if (f.schedule == ScheduleKind::file) f.file = &file;
  f.virtual_stages = any_of(1, 2, 3);
  f.braid = any_of(Braid::passes, Braid::ahead, Braid::halves);
  return f;
}

// The same with some facts no longer known. (The device stays: fp64 is refused where it is not known to be right.)
JobFacts with_less(JobFacts f, std::mt19937& random) {
  const auto forget = [&](auto&... facts) { ((facts = random() % 4 == 0 ? std::nullopt : facts), ...); };
  // With the ranks, the size of the last axis is known all the same: then it must be theirs.
  const bool fits = f.ranks == product(f.size);
  for (const AxisRow& row : axis_table) {
    if (random() % 4 == 0 && (row.axis != rest_axis || fits)) f.size[row.axis] = 0;
  }
  forget(f.ranks, f.compute, f.gradients, f.matmul, f.layers, f.heads, f.kv_heads, f.ffn, f.vocab, f.max_sequence, f.position,
         f.tokenizer_vocab, f.sequence, f.global_batch, f.micro_batch, f.sequence_parallel, f.schedule, f.virtual_stages,
         f.braid);
  return f;
}

TEST(JobRules, AnAnswerStaysAsMoreIsKnown) {
  std::mt19937 random(1);
  const auto file = parsed_schedule("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  std::map<std::string, std::map<RuleVerdict, int>> seen;  // by the rule's words, with less known
  for (int n = 0; n < 5'000; ++n) {
    const JobFacts all = any_job(random, *file), some = with_less(all, random);
    const bool is_whole = all.micro_batch_count().has_value();
    for (const JobRule& rule : job_rules()) {
      const RuleAnswer full = rule.answer(all), partial = rule.answer(some);
      if (is_whole) {
        EXPECT_NE(full.verdict, RuleVerdict::not_known) << rule.keys.front() << " " << rule.words;
      }
      if (partial.verdict != RuleVerdict::not_known) {
        ASSERT_EQ(partial.verdict, full.verdict) << rule.keys.front() << " " << rule.words << ": " << partial.why << full.why;
      }
      EXPECT_EQ(full.verdict == RuleVerdict::broken, !full.why.empty());
      ++seen[rule.keys.front() + " " + rule.words][partial.verdict];
    }
  }
  EXPECT_EQ(seen.size(), job_rules().size());
  for (const auto& [words, verdicts] : seen) EXPECT_EQ(verdicts.size(), 3U) << words << ": each answer is seen";
}

TEST(JobRules, NothingIsBrokenWhereNothingIsKnown) { EXPECT_TRUE(broken_rules({}).empty()); }

TEST(JobRules, ABrokenOneIsToldWithItsKeyAndValue) {
  EXPECT_THAT(broken_rules({.size = {{segment_axis, 3}}, .heads = 16}),
              ElementsAre(testing::AllOf(Field(&ConfigProblem::path, "parallel.tensor"), Field(&ConfigProblem::value, "3"),
                                         Field(&ConfigProblem::rule, "must divide model.heads=16"))));
  EXPECT_THAT(broken_rules({.device = DeviceKind::cuda, .compute = DType::f64}),
              ElementsAre(testing::AllOf(Field(&ConfigProblem::path, "precision.compute"), Field(&ConfigProblem::value, "fp64"),
                                         Field(&ConfigProblem::rule, HasSubstr("CPUs")))));
}

// What a configuration leaves to the planner is judged by what it says.
TEST(JobRules, AreAskedWithWhatAConfigurationSays) {
  const char* const open = R"(model: {layers: 2, hidden: 64, heads: 16}
data: {train: [text/**]}
train: {steps: 10, global_batch: 8, micro_batch: 2}
parallel: {tensor: auto, pipeline: auto, schedule: auto, virtual_stages: auto}
)";
  const auto refusal = [&](const std::vector<std::string>& overrides) {
    try {
      parse_config(open, overrides);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({"launch.ranks=6", "parallel.pipeline=3"}), "");
  EXPECT_THAT(refusal({"train.micro_batch=3"}),
              HasSubstr("train.global_batch=8 (line 3): must be a multiple of train.micro_batch=3"));
  EXPECT_THAT(refusal({"launch.ranks=8", "parallel.pipeline=3"}),
              HasSubstr("launch.ranks=8: must be a multiple of parallel.pipeline = 3"));
  EXPECT_THAT(refusal({"parallel.pipeline=7", "parallel.schedule=zb-v"}), HasSubstr("parallel.pipeline=7: must be at most 3"));
}

}  // namespace
}  // namespace plait
