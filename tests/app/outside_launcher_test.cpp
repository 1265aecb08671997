// What launch.mode auto makes of the environment of outside launchers: real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

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

}  // namespace
}  // namespace plait::app
