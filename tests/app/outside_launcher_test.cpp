// What launch.mode auto makes of the environment of outside launchers: real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/format.h"
#include "outside_ranks.h"

namespace plait::app {
namespace {

using testing::AllOf;
using testing::Each;
using testing::Field;
using testing::HasSubstr;
using testing::Not;

TEST_F(OutsideRanks, OfEachLauncherTrainOneRun) {
  for (const char* variables :
       {"RANK={} WORLD_SIZE=2 LOCAL_RANK={}", "OMPI_COMM_WORLD_RANK={} OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK={}",
        "SLURM_PROCID={} SLURM_NTASKS=2 SLURM_LOCALID={} SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2"}) {
    const std::size_t before = runs();
    EXPECT_THAT(train("", "", variables), Each(Field("status", &Outcome::status, 0))) << variables;
    EXPECT_EQ(runs(), before + 1) << variables;
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they reserve terabytes of addresses
// As large as two thirds of the host's memory: 16 bytes of each of 12 * hidden^2 parameters a block. Within an address space of
// 4 GiB, where what tries to have that memory ends with another status.
TEST_F(OutsideRanks, OfOneHostShareItsMemory) {
  const auto there = static_cast<double>(memory_size({DeviceKind::host, 0}));
  const auto hidden = 8 * std::llround(std::sqrt(there * 2 / 3 / (16 * 12 * 2)) / 8);
  EXPECT_THAT(
      train("--set model.hidden=" + std::to_string(hidden), "",
            "RANK={} WORLD_SIZE=2 LOCAL_RANK={} sh -c 'ulimit -v 4194304; exec \"$0\" \"$@\"'"),
      Each(is_refused(AllOf(HasSubstr("would run out of memory"), HasSubstr("has " + format_bytes(there / 2) + " for it")))));
}
#endif

TEST_F(OutsideRanks, AsWholeJobsAreToldOnce) {
  with_rendezvous_ = false;
  const std::vector<Outcome> outcomes = train("--set launch.mode=threads");
  EXPECT_THAT(outcomes, Each(Field("status", &Outcome::status, 0)));
  EXPECT_EQ(runs(), 2u);
  EXPECT_THAT(outcomes[0].errors, HasSubstr("warning: torchrun has started 2 processes, and each is a whole job of its own"));
  EXPECT_THAT(outcomes[1].errors, Not(HasSubstr("warning")));
}

TEST_F(OutsideRanks, WithoutARendezvousSayWhatTheyNeed) {
  with_rendezvous_ = false;
  EXPECT_THAT(train(""),
              Each(is_refused(AllOf(HasSubstr("launch.rendezvous"), HasSubstr("torchrun has started this process")))));
}

// sbatch without srun: one process, in an allocation for two tasks.
TEST_F(OutsideRanks, ABatchScriptIsOneProcess) {
  with_rendezvous_ = false;
  for (const Outcome& outcome : train("", "", "SLURM_JOB_ID=9{} SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LOCALID=0")) {
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_THAT(outcome.errors, AllOf(HasSubstr("2 ranks as threads"), Not(HasSubstr("warning"))));
  }
}

TEST_F(OutsideRanks, AreTheRanksOfBenchmarks) {
  for (const std::string benchmark : {"collectives --sizes 4K --rounds 1 --only all_reduce,all_gather",
                                      "p2p --sizes 4K --rounds 1 --no-products", "p2p --before-after --sizes 4K,64K --rounds 1",
                                      "p2p --concurrent --sizes 64K --rounds 1", "ring --messages 20 --max 1K"}) {
    const std::vector<Outcome> outcomes = bench(benchmark + " --json");
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, 0) << benchmark << ": " << outcome.errors;
    const auto result = nlohmann::json::parse(outcomes[0].output, nullptr, false);
    ASSERT_TRUE(result.is_object()) << benchmark << ": " << outcomes[0].output;
    EXPECT_EQ(result["mode"], "external") << benchmark;
    EXPECT_EQ(result["ranks"], 2) << benchmark;
    EXPECT_EQ(outcomes[1].output, "") << benchmark;
  }
}

TEST_F(OutsideRanks, OfABenchmarkAreStartedAlike) {
  EXPECT_THAT(bench("collectives --sizes 4K --rounds 1", "--type bf16"),
              Each(is_refused(AllOf(HasSubstr("the command line"), HasSubstr("--type bf16")))));
  EXPECT_THAT(bench("collectives --sizes 4K --rounds 1 --only all_reduce", "--interface 127.0.0.1"),
              Each(Field("status", &Outcome::status, 0)))
      << "an address is of its host";
  with_rendezvous_ = false;
  EXPECT_THAT(bench("ring"),
              Each(is_refused(AllOf(HasSubstr("--rendezvous"), HasSubstr("torchrun has started this process")))));
}

}  // namespace
}  // namespace plait::app
