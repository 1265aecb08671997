// Schedules from files: what is read, and what is refused with rank, position and reason.
#include "config/schedule_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "config/config.h"
#include "config/schedule_files.h"
#include "core/error.h"
#include "core/error_of.h"
#include "core/temporary_directory.h"

namespace plait {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string schedule_refusal(const std::string& text) {
  std::string problem;
  EXPECT_FALSE(parse_schedule(text, "test.csv", problem));
  return problem;
}

// Two ranks, two micro-batches, 1F1B.
const std::string two_ranks = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";

struct RealFile {
  const char* name;
  std::vector<int> rank_of_stage;
  bool splits_backward;
};

// As PyTorch 2.11 wrote them, all of 8 micro-batches.
TEST(ScheduleFile, ReadsWhatPyTorchWrites) {
  for (const RealFile& real : {RealFile{"Schedule1F1B-pp4-m8", {0, 1, 2, 3}, false},
                               RealFile{"ScheduleInterleaved1F1B-pp4-m8", {0, 1, 2, 3, 0, 1, 2, 3}, false},
                               RealFile{"ScheduleLoopedBFS-pp2-m8", {0, 1, 0, 1}, false},
                               RealFile{"ScheduleZBVZeroBubble-pp4-m8", {0, 1, 2, 3, 3, 2, 1, 0}, true},
                               RealFile{"ScheduleDualPipeV-pp2-m8", {0, 1, 1, 0}, true}}) {
    SCOPED_TRACE(real.name);
    const auto file = real_schedule(real.name);
    EXPECT_EQ(file->rank_of_stage, real.rank_of_stage);
    EXPECT_EQ(file->micro_batches, 8);
    EXPECT_EQ(file->splits_backward, real.splits_backward);
    std::size_t forwards = 0;
    for (const auto& passes : file->ranks) {
      for (const StagePass& p : passes) forwards += p.kind == PassKind::forward ? 1 : 0;
    }
    EXPECT_EQ(forwards, 8 * real.rank_of_stage.size());
    // What is written of it says the same.
    EXPECT_EQ(parsed_schedule(schedule_csv(file->ranks))->ranks, file->ranks);
  }
}

TEST(ScheduleFile, ReadsPairsIdleCellsAndPassesOverWhatPlaitAddsByItself) {
  const auto file = parsed_schedule(
      "\xef\xbb\xbf"
      "0UNSHARD,0F0,,0SEND_F0,0F1, 0RECV_B0 ,0B0,0I1,0W1,0REDUCE_GRAD\r\n"
      ",1F0,\"(1F1;1B0)OVERLAP_F_B\",1B1,\r\n\r\n");
  ASSERT_EQ(file->ranks.size(), 2U);
  std::string text;
  for (const StagePass& p : file->ranks[0]) text += to_string(p) + " ";
  EXPECT_EQ(text, "0F0 0F1 0B0 0I1 0W1 ");
  EXPECT_THAT(file->ranks[1], ElementsAre(StagePass{PassKind::forward, 1, 0}, StagePass{PassKind::forward, 1, 1},
                                          StagePass{PassKind::backward, 1, 0, true}, StagePass{PassKind::backward, 1, 1}));
  EXPECT_TRUE(file->splits_backward);
}

TEST(ScheduleFile, AnyPlacementAndAnyOrderThatRuns) {
  // Three stages and one, neighbours on one rank, micro-batches downwards, weight parts in an order of their own.
  const auto file = parsed_schedule(
      "0F1,1F1,3F1,3I1,0F0,1F0,3F0,3I0,3W0,1I1,0I1,1I0,0B0,0W1,1W0,3W1,1W1\n"
      "2F1,2F0,2B1,2B0\n");
  EXPECT_THAT(file->rank_of_stage, ElementsAre(0, 0, 1, 0));
}

TEST(ScheduleFile, RefusalsNameRankPositionAndReason) {
  EXPECT_THAT(schedule_refusal(""), HasSubstr("is empty"));
  EXPECT_THAT(schedule_refusal("\n\n"), HasSubstr("is empty"));
  EXPECT_THAT(schedule_refusal("0F0,0B0\n,,\n1F0,1B0\n"), HasSubstr("rank 1 (line 2) has no pass"));
  EXPECT_THAT(schedule_refusal("0F0,0X0\n"), HasSubstr("rank 0, position 2 (0X0): is no action"));
  EXPECT_THAT(schedule_refusal("0F0,,0B\n"), HasSubstr("rank 0, position 3 (0B): is no action"));
  for (const char* bad : {"F0", "0F-1", "-1F0", "0F0x", "0F99999999999", "0F1048576", "0f0", "0SEND_F0x", "(0F0)", "(0F0;0B0)",
                          "(0F0;0B0)OVERLAP", "((0F0;0B0)OVERLAP_F_B", "(0F0;0F1)OVERLAP_F_B", "(0B0;0I1)OVERLAP_F_B",
                          "(0F0;0SEND_F0)OVERLAP_F_B", "(0F0;0B0;0W0)OVERLAP_F_B", "\x01"}) {
    EXPECT_THAT(schedule_refusal(std::string("0F0,") + bad), HasSubstr("rank 0, position 2 (")) << bad;
  }
  EXPECT_THAT(schedule_refusal("0F0,0F0,0B0\n"),
              HasSubstr("rank 0, position 2 (0F0): the forward of stage 0, micro-batch 0, a second time: position 1"));
  EXPECT_THAT(schedule_refusal("0F0,0I0,0B0\n"),
              HasSubstr("position 3 (0B0): the backward of stage 0, micro-batch 0, a second time"));
  EXPECT_THAT(schedule_refusal("0F0,0B0,0W0\n"), HasSubstr("position 3 (0W0): the weight part"));
  EXPECT_THAT(schedule_refusal("0F0,0I0\n"),
              HasSubstr("rank 0: up to its last position, 2, there is no weight part of stage 0, micro-batch 0"));
  EXPECT_THAT(schedule_refusal("0F0,0W0\n"), HasSubstr("no input part of stage 0"));
  EXPECT_THAT(schedule_refusal("0F0,0F1,0B1\n"), HasSubstr("no backward of stage 0, micro-batch 0"));
  EXPECT_THAT(schedule_refusal("0F0,0B0,0B1\n"), HasSubstr("no forward of stage 0, micro-batch 1"));
  EXPECT_THAT(schedule_refusal("0F0,0B0\n0F1,0B1\n"), HasSubstr("rank 1, position 1 (0F1): stage 0 is on rank 0 already"));
  EXPECT_THAT(schedule_refusal("0F0,2F0,2B0,0B0\n"),
              HasSubstr("rank 0, position 2 (2F0): names stage 2, but no rank has stage 1"));
  EXPECT_THAT(schedule_refusal("0B0,0F0\n"),
              HasSubstr("rank 0, position 1 (0B0): deadlock: waits for the forward of stage 0, micro-batch 0, on rank 0"));
  EXPECT_THAT(schedule_refusal("0F0,0W0,0I0\n"), HasSubstr("waits for the input part of stage 0"));
  EXPECT_THAT(
      schedule_refusal("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n"),
      AllOf(HasSubstr("rank 0, position 2 (0B0): deadlock: waits for the backward of stage 1, micro-batch 0, on rank 1"),
            HasSubstr("rank 1 at position 1 (1F1) for the forward of stage 0, micro-batch 1, on rank 0")));
}

// Whatever is in the file, a message is text.
TEST(ScheduleFile, RefusalsShowPrintableText) {
  EXPECT_THAT(schedule_refusal("0F0,0\xc3\xa9\x1b[31m0\n"), HasSubstr("rank 0, position 2 (0???[31m0): is no action"));
  EXPECT_THAT(schedule_refusal("0F0," + std::string(1'000'000, 'x')),
              HasSubstr("position 2 (" + std::string(40, 'x') + "...)"));
}

// A few bytes ask for nothing large.
TEST(ScheduleFile, NumbersOfTheFileAreNoSizes) {
  EXPECT_THAT(schedule_refusal("0F0,0F1048575\n"),
              HasSubstr("rank 0, position 2 (0F1048575): makes 1048576 micro-batches, but there are only 2 passes"));
  EXPECT_THAT(schedule_refusal("0F0,1048575F0\n"), HasSubstr("makes 1048576 stages"));
  std::string wide, tall;
  for (int n = 0; n < 2000; ++n) wide += "0F" + std::to_string(n) + ",", tall += std::to_string(n) + "F0,";
  EXPECT_THAT(schedule_refusal(wide + tall),
              HasSubstr("2000 stages and 2000 micro-batches take 4000000 forwards, but there are 4000"));
}

TEST(ScheduleFile, WhatCannotBeReadIsRefused) {
  const plait::test::TemporaryDirectory temporary;
  const std::filesystem::path folder = temporary.path();
  const auto problem_of = [](const std::string& path) {
    std::string problem;
    EXPECT_FALSE(read_schedule_file(path, problem));
    return problem;
  };
  EXPECT_THAT(problem_of(folder / "none.csv"), HasSubstr("cannot be read: No such file"));
  EXPECT_THAT(problem_of(folder), HasSubstr("is not a file"));
  EXPECT_THAT(problem_of("/dev/zero"), HasSubstr("is not a file"));
  std::ofstream(folder / "large.csv").put('0');
  std::filesystem::resize_file(folder / "large.csv", most_schedule_bytes + 1);
  EXPECT_THAT(problem_of(folder / "large.csv"), HasSubstr("more than 16 MiB"));
}

// In a configuration.
class ScheduleKey : public testing::Test {
 protected:
  ScheduleKey() { std::ofstream(path_) << two_ranks; }

  Config read(const std::vector<std::string>& overrides = {}, const std::string& schedule = "") {
    return parse_config(
        "model: {layers: 4, hidden: 64, heads: 4, vocab: 64}\ndata: {tokenizer: random}\n"
        "train: {steps: 1, global_batch: 2, micro_batch: 1}\n"
        "parallel:\n  data: 1\n  pipeline: 2\n  schedule: " +
            (schedule.empty() ? "{file: " + path_ + "}" : schedule) + "\n",
        overrides);
  }
  std::string problem(const std::vector<std::string>& overrides, const std::string& schedule = "") {
    return error_of<ConfigError>([&] { return read(overrides, schedule); });
  }

  const plait::test::TemporaryDirectory folder_;
  const std::string path_ = folder_.path() + "/small.csv";
};

TEST_F(ScheduleKey, IsReadWrittenAndReadAgain) {
  const Config config = read();
  EXPECT_EQ(config.parallel.schedule, ScheduleKind::file);
  ASSERT_TRUE(config.parallel.schedule_file);
  EXPECT_EQ(config.parallel.schedule_file->text, two_ranks);
  EXPECT_EQ(schedule_name(config.parallel), path_);
  const std::string written = to_yaml(config);
  EXPECT_THAT(written, HasSubstr("  schedule: {file: \"" + path_ + "\"}\n"));
  EXPECT_EQ(to_yaml(parse_config(written)), written);
  EXPECT_TRUE(problems_of(config).empty());
  // The command line's way, over a name and over a file; and back.
  EXPECT_EQ(read({"parallel.schedule.file=" + path_}, "1f1b").parallel.schedule, ScheduleKind::file);
  EXPECT_EQ(read({"parallel.schedule={file: " + path_ + "}"}, "1f1b").parallel.schedule, ScheduleKind::file);
  const Config back = read({"parallel.schedule=zb-h1"});
  EXPECT_EQ(back.parallel.schedule, ScheduleKind::zb_h1);
  EXPECT_FALSE(back.parallel.schedule_file);
}

TEST_F(ScheduleKey, IsRefusedWhereItDoesNotFit) {
  EXPECT_THAT(problem({}, "file"), AllOf(HasSubstr("must be one of auto, gpipe, 1f1b, "), HasSubstr(", or {file: PATH}")));
  EXPECT_THAT(problem({}, "{file: }"), HasSubstr("wrong type"));
  EXPECT_THAT(problem({}, "{file: [a]}"), HasSubstr("wrong type"));
  EXPECT_THAT(problem({}, "{flie: a.csv}"), HasSubstr("wrong type"));
  EXPECT_THAT(problem({}, "{file: nowhere.csv}"),
              AllOf(HasSubstr("parallel.schedule={file: nowhere.csv}"), HasSubstr("No such file")));
  EXPECT_THAT(problem({"parallel.tensor.file=x"}), HasSubstr("unknown key"));
  EXPECT_THAT(problem({"parallel.pipeline=4"}), HasSubstr("has passes of 2 ranks, but parallel.pipeline=4"));
  EXPECT_THAT(problem({"parallel.pipeline=1"}), HasSubstr("has passes of 2 ranks, but parallel.pipeline=1"));
  EXPECT_THAT(problem({"train.global_batch=6"}), HasSubstr("has 2 micro-batches, but a step has 6"));
  EXPECT_EQ(problem({"train.global_batch=6", "train.micro_batch=3"}), nothing_thrown);
  EXPECT_EQ(problem({"train.global_batch=4", "parallel.data=2"}), nothing_thrown);
  EXPECT_THAT(problem({"parallel.virtual_stages=2"}), HasSubstr("must be 1 with parallel.schedule=" + path_));
  EXPECT_THAT(problem({"parallel.stages=[1, 1, 2]"}), HasSubstr("must have 2 numbers"));
  EXPECT_EQ(problem({"parallel.stages=[1, 3]"}), nothing_thrown);
  EXPECT_EQ(problem({"parallel.zero=2"}), nothing_thrown);
  std::ofstream(path_) << "0F0,0I0,0W0,0F1,0B1\n1F0,1B0,1F1,1B1\n";
  EXPECT_THAT(problem({"parallel.zero=2"}), HasSubstr("must be 0 or 1 with parallel.schedule=" + path_));
  std::ofstream(path_) << "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n1F0,1F1,1B0,1B1\n";
  EXPECT_THAT(problem({"parallel.zero=2"}), HasSubstr("embedding and head add to one table"));
  EXPECT_EQ(problem({"parallel.zero=2", "model.tie_embeddings=false"}), nothing_thrown);
  const std::vector<std::string> one_rank = {"parallel.pipeline=1", "parallel.zero=2", "train.global_batch=2"};
  std::ofstream(path_) << "0F0,0F1,1F0,1F1,1B0,1B1,0B0,0B1\n";
  EXPECT_THAT(problem(one_rank), HasSubstr("embedding and head add to one table"));
  std::ofstream(path_) << "0F0,0F1,0B0,0B1\n";
  EXPECT_EQ(problem(one_rank), nothing_thrown);
  EXPECT_THAT(problem({"model.layers=0"}), HasSubstr("model.layers"));
  std::ofstream(path_) << "0F0,2F0,4F0,6F0,6B0,4B0,2B0,0B0\n1F0,3F0,5F0,5B0,3B0,1B0\n";
  EXPECT_THAT(problem({"model.layers=2", "train.global_batch=1"}), HasSubstr("the 7 stages of " + path_ + " are too many"));
}

}  // namespace
}  // namespace plait
