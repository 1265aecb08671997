#include "core/task_progress.h"

#include <gmock/gmock.h>

#include <array>
#include <cstdio>
#include <memory>

namespace plait {
namespace {

using namespace std::chrono_literals;

class TaskProgressTest : public testing::Test {
 protected:
  std::string written() {
    std::fflush(out_.get());
    std::rewind(out_.get());
    std::string text;
    std::array<char, 1024> buffer;
    for (std::size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), out_.get())) > 0;) text.append(buffer.data(), n);
    return text;
  }
  static std::shared_ptr<StatusLine> line_of(const TerminalOptions& options) { return std::make_shared<StatusLine>(options); }
  std::function<TaskProgress::Clock::time_point()> clock() {
    return [this] { return TaskProgress::Clock::time_point(now_); };
  }

  std::unique_ptr<std::FILE, int (*)(std::FILE*)> out_{std::tmpfile(), std::fclose};
  std::chrono::milliseconds now_ = 100s;
};

TEST_F(TaskProgressTest, SaysNothingOfWhatIsDoneInFiveSeconds) {
  const auto line = line_of({.out = out_.get()});
  TaskProgress progress("measuring", line, clock());
  progress.advance(0.5, "half");
  now_ += 4900ms;
  progress.show();
  EXPECT_EQ(written(), "");
}

TEST_F(TaskProgressTest, IsALineInHalfAMinuteWhereThereIsNoTerminal) {
  const auto line = line_of({.out = out_.get()});
  TaskProgress progress("measuring", line, clock());
  progress.advance(0.25, "case 2 of 8");
  now_ += 10s;
  progress.show();
  now_ += 29s;
  progress.show();
  progress.advance(0.5, "");
  now_ += 1s;
  progress.show();
  EXPECT_EQ(written(),
            "plait: measuring: 0:10, 25 % done, about 0:30 left: case 2 of 8\n"
            "plait: measuring: 0:40, 50 % done, about 0:40 left\n");
}

TEST_F(TaskProgressTest, GivesNoEstimateWithoutAnything) {
  const auto line = line_of({.out = out_.get()});
  TaskProgress progress("planning", line, clock());
  now_ += 7s;
  progress.show();
  EXPECT_EQ(written(), "plait: planning: 0:07\n");
}

TEST_F(TaskProgressTest, EstimatesWithoutTheTimeOfGettingReady) {
  const auto line = line_of({.out = out_.get()});
  TaskProgress progress("measuring", line, clock());
  progress.advance(0, "setting up");
  now_ += 40s;
  progress.advance(0, "");
  now_ += 5s;
  progress.advance(0.5, "");
  now_ += 5s;
  progress.show();
  EXPECT_EQ(written(), "plait: measuring: 0:50, 50 % done, about 0:10 left\n");
}

TEST_F(TaskProgressTest, IsRewrittenOnATerminalAndErasedInTheEnd) {
  const auto line = line_of({.out = out_.get(), .updating = true, .width = 30});
  {
    TaskProgress progress("measuring", line, clock());
    progress.advance(0.5, "something that is longer than a line");
    now_ += 6s;
    progress.show();
    progress.advance(0.75, "");
    progress.advance(0.2, "");  // never back
    now_ += 1s;
    progress.show();
  }
  EXPECT_EQ(written(), "measuring: 0:06, 50 %...\r\x1b[Kmeasuring: 0:07, 75 %...\r\x1b[K");
}

TEST_F(TaskProgressTest, IsOnStderrWhereNoLineIsGiven) {
  TaskProgress progress("packing", nullptr, clock());
  now_ += 5s;
  testing::internal::CaptureStderr();
  progress.show();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "plait: packing: 0:05\n");
}

TEST_F(TaskProgressTest, KeepsTheTimeByItself) {
  const auto line = line_of({.out = out_.get()});
  const auto begin = TaskProgress::Clock::now();
  {
    const TaskProgress progress("waiting", line);
  }
  EXPECT_LT(TaskProgress::Clock::now() - begin, 2s);  // its thread does not sleep to the end
  EXPECT_EQ(written(), "");
}

}  // namespace
}  // namespace plait
