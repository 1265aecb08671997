// Files that change or cannot grow under a run of the program: an ordinary error names them, and what was kept stays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "checkpoint/checkpoint_directory.h"
#include "core/temporary_directory.h"
#include "run_plait.h"

namespace plait::app {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

class FileFaults : public testing::TestWithParam<const char*> {
 protected:
  FileFaults() {
    std::ofstream text(path("text.txt"));
    for (int i = 0; i < 20'000; ++i) text << "line " << i << "\n";
    std::ofstream(path("job.yaml"))
        << "run: {name: r, dir: " << path("runs") << "}\nmodel: {layers: 2, hidden: 64, heads: 4}\ndata: {train: ["
        << path("text.txt")
        << "], sequence_length: 16}\ntrain: {steps: 2, global_batch: 4, micro_batch: 1, eval_batches: 1}\n"
           "parallel: {data: 2}\ncheckpoint: {every: 1}\nlog: {every: 1}\n"
        << "launch: {device: cpu, mode: " << GetParam() << "}\n";
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  // `before` and `after`: the shell's, around the program.
  Outcome plait(const std::string& before, const std::string& arguments) {
    return run(folder_.path(), "sh -c '" + before + " exec " + test_paths::plait + " train " + arguments + "'");
  }
  std::string newest_checkpoint() const {
    const auto found = checkpoint::list_checkpoints(path("runs/r"));
    return found.empty() || !found.front().good() ? "" : found.front().directory.filename().string();
  }

  plait::test::TemporaryDirectory folder_;
};

TEST_P(FileFaults, DataThatShrinksIsNamed) {
  const std::string metrics = path("runs/r/metrics.jsonl");
  const Outcome outcome = plait("(n=0; while [ ! -s " + metrics +
                                    " ] && [ $n -lt 3000 ]; do sleep 0.02; n=$((n+1)); done; : > " + path("text.txt") + ") &",
                                path("job.yaml") + " --set train.steps=1000000 --set checkpoint.every=0");
  EXPECT_EQ(outcome.status, 2) << outcome.errors;
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("cannot read " + path("text.txt") + ": it ends at byte"), HasSubstr("rank ")));
  EXPECT_THAT(outcome.errors, Not(HasSubstr("signal")));
}

TEST_P(FileFaults, AFileThatMayNotGrowIsNamedAndTheCheckpointBeforeStays) {
  ASSERT_EQ(plait("", path("job.yaml")).status, 0);
  ASSERT_EQ(newest_checkpoint(), "step-00000002");
  // In units of 512 bytes: less than a checkpoint, more than the metrics.
  const Outcome limited = plait("ulimit -f 400;", "--resume " + path("runs/r") + " --set train.steps=4");
  EXPECT_EQ(limited.status, 3) << limited.errors;
  EXPECT_THAT(limited.errors, AllOf(HasSubstr(".safetensors"), HasSubstr("File too large"), HasSubstr("ulimit -f")));
  EXPECT_EQ(newest_checkpoint(), "step-00000002");
  const Outcome resumed = plait("", "--resume " + path("runs/r") + " --set train.steps=4");
  EXPECT_EQ(resumed.status, 0) << resumed.errors;
  EXPECT_EQ(newest_checkpoint(), "step-00000004");
}

TEST_P(FileFaults, ARunThatIsRefusedLeavesNothing) {
  const auto refused = [&](const std::string& set) {
    const Outcome outcome = plait("", path("job.yaml") + " --set " + set);
    EXPECT_EQ(outcome.status, 2) << set << outcome.errors;
    EXPECT_FALSE(std::filesystem::exists(path("runs"))) << set;
    return outcome.errors;
  };
  EXPECT_THAT(refused("data.train=" + path("none")), HasSubstr("none: matches no file"));
  EXPECT_THAT(refused("data.validation=" + path("none")), HasSubstr("none: matches no file"));
  EXPECT_THAT(refused("data.sequence_length=300000"), HasSubstr("must be at least data.sequence_length + 1 = 300001"));
  EXPECT_THAT(refused("data.tokenizer.file=" + path("none.json")), HasSubstr("none.json: cannot be opened"));
  ASSERT_EQ(plait("", path("job.yaml")).status, 0);
  EXPECT_EQ(plait("", path("job.yaml") + " --set data.train=" + path("none")).status, 2);
  EXPECT_FALSE(std::filesystem::exists(path("runs/r-2")));
  EXPECT_EQ(newest_checkpoint(), "step-00000002") << "that of the run before";
}

INSTANTIATE_TEST_SUITE_P(Modes, FileFaults, testing::Values("threads", "processes"),
                         [](const auto& mode) { return std::string(mode.param); });

}  // namespace
}  // namespace plait::app
