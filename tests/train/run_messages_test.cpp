#include "train/run_messages.h"

#include <gtest/gtest.h>

namespace plait::train {
namespace {

TrainRequest started_by(std::vector<std::string> argv, const std::string& resume = "") {
  TrainRequest request;
  request.argv = std::move(argv);
  request.resume = resume;
  return request;
}

TEST(CommandToGoOn, OfANewRunNeedsItsDirectoryOnly) {
  EXPECT_EQ(command_to_go_on(started_by({"./plait", "train", "a.yaml", "--set", "train.steps=9"}), "runs/a"),
            "./plait train --resume runs/a");
}

TEST(CommandToGoOn, OfAResumedRunSaysAgainWhatWasSaid) {
  const std::string checkpoint = "runs/a/checkpoints/step-00000002";
  EXPECT_EQ(
      command_to_go_on(started_by({"plait", "train", "--resume", checkpoint, "--set", "train.steps=9"}, checkpoint), "runs/a"),
      "plait train --resume runs/a --set train.steps=9");
  EXPECT_EQ(command_to_go_on(started_by({"plait", "train", "--resume=" + checkpoint}, checkpoint), "runs/a"),
            "plait train --resume=runs/a");
}

TEST(CommandToGoOn, IsQuotedForAShell) {
  EXPECT_EQ(command_to_go_on(started_by({"plait", "train", "a.yaml"}), "my run's $HOME"),
            "plait train --resume 'my run'\\''s $HOME'");
  EXPECT_EQ(command_line({"plait", "train", "--set", "run.name="}), "plait train --set run.name=");
  EXPECT_EQ(command_line({"plait", ""}), "plait ''");
  EXPECT_EQ(command_to_fork("runs/a b/checkpoints/step-00000002"),
            "plait train --init-from 'runs/a b/checkpoints/step-00000002' --with-optimizer");
}

}  // namespace
}  // namespace plait::train
