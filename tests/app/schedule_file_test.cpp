// Schedules from files as a user meets them: planned, drawn, written, verified, trained with, resumed, refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "program_test.h"

namespace plait::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ScheduleFileCommand : public ProgramTest {
 protected:
  ScheduleFileCommand() {
    write("job.yaml",
          "run: {name: r, dir: " + folder.path() +
              "/runs}\nmodel: {layers: 4, hidden: 16, heads: 2, vocab: 64}\ndata: {tokenizer: random, sequence_length: 8}\n"
              "train: {steps: 2, global_batch: 4, micro_batch: 1}\n"
              "parallel: {data: 1, pipeline: 2, schedule: {file: " +
              path("v.csv") + "}}\nlaunch: {device: cpu}\nlog: {tensorboard: false}\nverify: {steps: 2}\n");
    // Neither a built-in schedule nor their placement or order.
    write("v.csv",
          "0F1,0F0,3F1,3I1,3F0,(0F2;3B0)OVERLAP_F_B,3W1,0B1,3F2,0F3,3B2,0I0,3F3,0W0,3B3,0B2,0B3\n"
          "1F1,2F1,1F0,2F0,2B1,1B1,1F2,2F2,2B0,1I0,1F3,2F3,2B2,2B3,1B2,1W0,1B3\n");
  }

  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(ScheduleFileCommand, OneThatPlaitWroteIsPlannedLikeTheOneByName) {
  const std::string by_name = "plan @/job.yaml --set parallel.schedule=zb-v --json --programs --schedule-csv @/written.csv";
  nlohmann::json named = json(by_name),
                 read_again = json("plan @/job.yaml --set parallel.schedule.file=@/written.csv --json --programs");
  EXPECT_THAT(read("written.csv"), testing::StartsWith("0F0,0F1,"));
  EXPECT_EQ(read_again["schedule"], path("written.csv"));
  EXPECT_EQ(read_again["choice"]["schedule"], "file");
  for (const char* key : {"programs", "stages", "memory_bytes_by_kind", "predicted"})
    EXPECT_EQ(read_again[key], named[key]) << key;
}

TEST_F(ScheduleFileCommand, IsDrawnAndWrittenAgain) {
  const Outcome drawn = plait("plan @/job.yaml --grid --schedule-csv @/again.csv");
  ASSERT_EQ(drawn.status, 0) << drawn.errors;
  EXPECT_THAT(drawn.output, AllOf(HasSubstr("4 micro-batches"), HasSubstr("rank 0  F1a F0a"), HasSubstr("rank 1")));
  EXPECT_THAT(read("again.csv"), testing::StartsWith("0F1,0F0,3F1,3I1,3F0,0F2,3B0,3W1,"));
}

TEST_F(ScheduleFileCommand, IsVerified) {
  const nlohmann::json report =
      json("verify @/job.yaml --json --set parallel.schedule=1f1b --layout 'pipeline=2 schedule.file=" + path("v.csv") +
           "' --layout 'pipeline=2 data=1 tensor=2 recompute=full schedule.file=" + path("v.csv") + "'");
  EXPECT_EQ(report["passed"], 2);
  EXPECT_EQ(report["layouts"][0]["schedule"], path("v.csv"));
  EXPECT_THAT(report["layouts"][0]["name"].get<std::string>(), HasSubstr("schedule.file=" + path("v.csv")));
}

TEST_F(ScheduleFileCommand, ARunGoesOnWithTheScheduleItWasStartedWith) {
  const std::string schedule = read("v.csv"), runs = "train --resume @/runs/r --set train.steps=";
  const Outcome first = plait("train @/job.yaml --set launch.mode=processes");
  ASSERT_EQ(first.status, 0) << first.errors;
  EXPECT_EQ(read("runs/r/schedule.csv"), schedule);
  EXPECT_THAT(read("runs/r/config.yaml"), HasSubstr("  schedule: {file: \"" + path("v.csv") + "\"}\n"));
  const Outcome same = plait(runs + "3");
  ASSERT_EQ(same.status, 0) << same.errors;
  EXPECT_THAT(same.errors, testing::Not(HasSubstr("schedule")));
  std::filesystem::remove(path("v.csv"));
  const Outcome gone = plait(runs + "4");
  ASSERT_EQ(gone.status, 0) << gone.errors;
  EXPECT_THAT(gone.errors, HasSubstr("has changed since the run was started; it goes on with " + path("runs/r/schedule.csv")));
  const Outcome other = plait("train @/job.yaml --resume @/runs/r --set train.steps=5 --set parallel.schedule=gpipe");
  ASSERT_EQ(other.status, 0) << other.errors;
  EXPECT_THAT(other.errors, HasSubstr("parallel.schedule is not the one that the run was started with"));
}

TEST_F(ScheduleFileCommand, APlanIsForItsFile) {
  write("plan.json", plait("plan @/job.yaml --json").output);
  const Outcome run = plait("train @/job.yaml --plan @/plan.json --set checkpoint.final=false");
  EXPECT_EQ(run.status, 0) << run.errors;
  const Outcome without = plait("train @/job.yaml --plan @/plan.json --set parallel.schedule=1f1b");
  EXPECT_EQ(without.status, 2);
  EXPECT_THAT(without.errors, HasSubstr("was made for a schedule from a file"));
  write("v.csv", "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n");
  const Outcome changed = plait("train @/job.yaml --plan @/plan.json");
  EXPECT_EQ(changed.status, 2);
  EXPECT_THAT(changed.errors, HasSubstr("was made for another job: parallel.schedule is another file now"));
}

TEST_F(ScheduleFileCommand, WhatCannotRunIsRefusedWithStatus2) {
  write("bad.csv", "0F0,0F1,0F2,0F3,0B1,0B0,0B2,0B3\n1F0,1B0,1F2,1B1,1F1,1B2,1F3,1B3\n");
  for (const char* command : {"plan", "train", "verify"}) {
    EXPECT_THAT(
        refused(std::string(command) + " @/job.yaml --set parallel.schedule.file=@/bad.csv"),
        AllOf(HasSubstr("parallel.schedule={file: "), HasSubstr("rank 1 at position 4 (1B1) for the forward of stage 1")));
  }
  EXPECT_THAT(refused("train @/job.yaml --set parallel.schedule.file=nowhere.csv"), HasSubstr("cannot be read"));
  EXPECT_THAT(refused("train @/job.yaml --set parallel.pipeline=4"), HasSubstr("has passes of 2 ranks"));
}

}  // namespace
}  // namespace plait::app
