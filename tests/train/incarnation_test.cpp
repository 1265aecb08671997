// A job gives its plan up, with all that was built from it, and goes on with another incarnation in the same process.
#include "train/incarnation.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checkpoint_reader.h"
#include "launch/launch.h"
#include "train/trainer_fixture.h"

namespace plait::train {
namespace {

class IncarnationTest : public TrainerTest, public testing::WithParamInterface<int> {};

TEST_P(IncarnationTest, TheNextOneGoesOnBitForBit) {
  const int ranks = GetParam();
  const std::vector<std::string> set = {"launch.ranks=" + std::to_string(ranks),
                                        "parallel.zero=1",
                                        "train.steps=60",
                                        "checkpoint.every=0",
                                        "train.eval_every=20",
                                        "log.every=1"};
  std::vector<std::string> uninterrupted = set;
  uninterrupted.push_back("run.name=whole");
  ASSERT_EQ(train(request(uninterrupted)), 0);

  const TrainRequest start = request(set);
  const Config& config = start.job.config;
  const launch::LaunchPlan plan = launch::plan_launch(config);
  std::vector<std::unique_ptr<Job>> jobs(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> done(jobs.size());
  {
    const launch::StopSignals signals;
    const std::jthread sender = stop_after(4);
    launch::launch(plan,
                   [&](launch::RankContext& rank) {
                     const auto r = static_cast<std::size_t>(rank.rank);
                     World world(config, signals, rank);
                     jobs[r] = std::make_unique<Job>(start, world);
                     Incarnation first(*jobs[r], world, jobs[r]->start());
                     EXPECT_EQ(first.run(), Incarnation::End::stopped);
                     done[r] = first.step();
                   },
                   {});
  }
  const std::int64_t step = done.front();
  EXPECT_GE(step, 4);
  ASSERT_LT(step, 60);
  EXPECT_EQ(done, std::vector<std::int64_t>(jobs.size(), step)) << "all ranks end after the same step";

  const launch::StopSignals signals;
  launch::launch(plan,
                 [&](launch::RankContext& rank) {
                   Job& job = *jobs[static_cast<std::size_t>(rank.rank)];
                   RunStart from = job.start();
                   from.checkpoint = checkpoint::checkpoint_directory(job.run_dir(), step);
                   from.digest = checkpoint::CheckpointReader(from.checkpoint).digest();
                   from.resumed = true;
                   from.step = step;
                   from.samples = job.samples_after(step);
                   World world(config, signals, rank);
                   Incarnation second(job, world, from);
                   EXPECT_EQ(second.run(), Incarnation::End::finished);
                   EXPECT_EQ(second.step(), 60);
                 },
                 {});

  const auto whole = metrics(run_dir("whole")), both = metrics(run_dir());
  ASSERT_EQ(whole.size(), 60u);
  ASSERT_EQ(both.size(), 60u) << "each step once";
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens"}) EXPECT_EQ(both[i][key], whole[i][key]) << key;
  }
  EXPECT_EQ(both.back()["validation_loss"], whole.back()["validation_loss"]);
  expect_same_state(checkpoint::checkpoint_directory(run_dir(), 60), checkpoint::checkpoint_directory(run_dir("whole"), 60));
}

INSTANTIATE_TEST_SUITE_P(Ranks, IncarnationTest, testing::Values(1, 2));

}  // namespace
}  // namespace plait::train
