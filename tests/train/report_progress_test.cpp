#include "core/format.h"
#include "train/report/progress.h"

#include <gmock/gmock.h>
#include <spdlog/logger.h>

#include <cmath>
#include <cstdlib>
#include <thread>
#include <vector>

namespace plait::train {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

StepMetrics sample(std::int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 2.43126;
  metrics.learning_rate = 5.8e-4;
  metrics.grad_norm = 0.8237;
  metrics.tokens_per_second = 562'100;
  metrics.step_ms = 58.31;
  metrics.mfu = 0.4571;
  metrics.tflops_per_gpu = 452.3;
  metrics.peak_bytes = std::int64_t{12} << 30;
  return metrics;
}

// Columns that a text takes: UTF-8 continuation bytes and escape sequences take none.
int visible_width(const std::string& text) {
  int width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = text.find('m', i);
    } else if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) {
      ++width;
    }
  }
  return width;
}

// Where a Progress writes in these tests.
class Screen {
 public:
  Screen() : out_(::open_memstream(&data_, &size_)) {}
  ~Screen() {
    std::fclose(out_);
    std::free(data_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  TerminalOptions terminal() const { return {.out = out_, .updating = true, .unicode = false, .color = false, .width = 100}; }
  TerminalOptions plain() const { return {.out = out_, .updating = false, .unicode = false, .color = false, .width = 0}; }
  std::string raw() const {
    std::fflush(out_);
    return {data_, size_};
  }
  // The lines a terminal shows after all of it.
  std::vector<std::string> lines() const {
    std::vector<std::string> shown(1);
    const std::string text = raw();
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text.compare(i, 4, "\r\x1b[K") == 0) {
        shown.back().clear();
        i += 3;
      } else if (text[i] == '\n') {
        shown.emplace_back();
      } else {
        shown.back() += text[i];
      }
    }
    return shown;
  }

 private:
  char* data_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* out_;
};

struct FakeClock {
  Progress::Clock::time_point time{};
  std::function<Progress::Clock::time_point()> now() {
    return [this] { return time; };
  }
};

TEST(ProgressText, Durations) {
  EXPECT_EQ(format_duration(seconds(0)), "0:00");
  EXPECT_EQ(format_duration(seconds(59)), "0:59");
  EXPECT_EQ(format_duration(seconds(750)), "12:30");
  EXPECT_EQ(format_duration(seconds(3 * 3600 + 300)), "3:05:00");
  EXPECT_EQ(format_duration(seconds(51 * 3600 + 300)), "2d 03:05");
  EXPECT_EQ(format_duration(seconds(-5)), "0:00");
}

TEST(ProgressText, Counts) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(0.4349), "0.435");
  EXPECT_EQ(format_count(12), "12");
  EXPECT_EQ(format_count(987.4), "987");
  EXPECT_EQ(format_count(999.6), "1.00k");
  EXPECT_EQ(format_count(12'345), "12.3k");
  EXPECT_EQ(format_count(562'100), "562k");
  EXPECT_EQ(format_count(4'560'000), "4.56M");
  EXPECT_EQ(format_count(9'996'000), "10.0M");
}

TEST(ProgressText, AWideLineShowsEverything) {
  EXPECT_EQ(status_text({160, false, false}, 84, 200, sample(84), 2.5, seconds(67)),
            "[##########--------------]  84/200  loss 2.4313  val 2.5000  lr 5.80e-04  norm 0.82  58.3 ms  562k tok/s"
            "  452 TFLOP/s  MFU 45.7%  12.0 GiB  ETA 1:07");
}

TEST(ProgressText, LinesFitTheirColumnsAndKeepTheMostTelling) {
  for (const bool unicode : {false, true}) {
    for (int columns = 8; columns < 200; ++columns) {
      const std::string line = status_text({columns, unicode, true}, 84, 200, sample(84), 2.5, seconds(67));
      ASSERT_LE(visible_width(line), columns) << line;
      ASSERT_THAT(line, HasSubstr("84/200"));
      if (columns >= 45) {
        ASSERT_THAT(line, AllOf(HasSubstr("loss 2.4313"), HasSubstr("ETA 1:07")));
      }
    }
  }
  EXPECT_THAT(status_text({79, false, false}, 84, 200, sample(84), 2.5, seconds(67)),
              AllOf(HasSubstr("58.3 ms"), HasSubstr("562k tok/s"), Not(HasSubstr("GiB"))));
}

TEST(ProgressText, TheBarFills) {
  const LineStyle style{40, false, false};
  const auto line = [&](std::int64_t step) { return status_text(style, step, 10, std::nullopt, std::nullopt, std::nullopt); };
  EXPECT_EQ(line(0), "[------------------------]  0/10");
  EXPECT_EQ(line(5), "[############------------]  5/10");
  EXPECT_EQ(line(10), "[########################] 10/10");
}

TEST(ProgressText, PlainLine) {
  EXPECT_EQ(plain_text(sample(84), 1000, seconds(67)),
            "step   84/1000  loss 2.4313  lr 5.80e-04  norm 0.824  58.3 ms  562k tok/s  452.3 TFLOP/s  MFU 45.7%"
            "  12.0 GiB  ETA 1:07");
  EXPECT_EQ(validation_text(84, 1000, 2.0), "step   84/1000  validation loss 2.0000  perplexity 7.389");
  EXPECT_EQ(validation_text(84, 1000, -std::nan("")), "step   84/1000  validation loss nan  perplexity nan");
}

TEST(ProgressPlain, ALinePerReportAndNoEscapes) {
  const Screen screen;
  Progress progress(200, 0, screen.plain());
  progress.report(sample(10));
  progress.advance(11);
  progress.validation(20, 2.5);
  progress.print("saved");
  progress.report(sample(20));
  progress.finish();
  const auto lines = screen.lines();
  ASSERT_EQ(lines.size(), 5u) << screen.raw();
  EXPECT_THAT(lines[0], HasSubstr("step  10/200  loss 2.4313"));
  EXPECT_THAT(lines[1], HasSubstr("step  20/200  validation loss 2.5000"));
  EXPECT_EQ(lines[2], "saved");
  EXPECT_THAT(lines[3], HasSubstr("step  20/200"));
  EXPECT_THAT(screen.raw(), Not(HasSubstr("\x1b")));
}

TEST(ProgressTerminal, OneUpdatingLineBelowLastingOnes) {
  const Screen screen;
  Progress progress(200, 0, screen.terminal());
  progress.report(sample(10));
  progress.report(sample(20));
  EXPECT_EQ(screen.lines().size(), 1u);
  EXPECT_THAT(screen.lines()[0], HasSubstr(" 20/200"));
  progress.validation(20, 2.5);
  auto lines = screen.lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], "step  20/200  validation loss 2.5000  perplexity 12.18");
  EXPECT_THAT(lines[1], HasSubstr(" 20/200"));
  progress.report(sample(30));
  EXPECT_EQ(screen.lines().size(), 2u);
  progress.finish();
  lines = screen.lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[1], HasSubstr(" 30/200"));
  EXPECT_EQ(lines[2], "");
}

TEST(ProgressTerminal, ProseIsFoldedAboveTheLineAndWholeElsewhere) {
  const std::string prose = std::string(60, 'a') + " " + std::string(39, 'b') + " " + std::string(20, 'c');
  const Screen screen, file;
  Progress(200, 0, screen.terminal()).print_prose(prose);
  EXPECT_EQ(screen.raw(), prose.substr(0, 100) + "\n    " + std::string(20, 'c') + "\n");
  Progress(200, 0, file.plain()).print_prose(prose);
  EXPECT_EQ(file.raw(), prose + "\n");
}

TEST(ProgressTerminal, TheDestructorLeavesTheLineStanding) {
  const Screen screen;
  {
    Progress(200, 0, screen.terminal()).report(sample(10));
  }
  EXPECT_EQ(screen.lines().size(), 2u);
}

TEST(ProgressTerminal, AdvanceMovesTheBarAtMostTwentyTimesASecond) {
  const Screen screen;
  FakeClock clock;
  Progress progress(2000, 0, screen.terminal(), clock.now());
  progress.report(sample(1));
  for (int step = 2; step <= 1000; ++step) {
    clock.time += std::chrono::milliseconds(1);
    progress.advance(step);
  }
  std::size_t redraws = 0;
  const std::string raw = screen.raw();
  for (std::size_t at = raw.find('\r'); at != std::string::npos; at = raw.find('\r', at + 1)) ++redraws;
  EXPECT_GE(redraws, 19u);
  EXPECT_LE(redraws, 21u);
}

TEST(ProgressTerminal, EtaStartsAfterTheFirstStepAndCountsAllTimeSince) {
  const Screen screen;
  FakeClock clock;
  Progress progress(100, 40, screen.terminal(), clock.now());
  clock.time += seconds(60);  // tuning before the first step is not extrapolated
  progress.report(sample(41));
  EXPECT_THAT(screen.lines().back(), Not(HasSubstr("ETA")));
  clock.time += seconds(18);
  progress.report(sample(50));
  EXPECT_THAT(screen.lines().back(), HasSubstr("ETA 1:40"));
  clock.time += seconds(82);
  progress.report(sample(91));
  EXPECT_THAT(screen.lines().back(), HasSubstr("ETA 0:18"));
}

TEST(ProgressSink, LogMessagesAppearAboveTheLine) {
  const Screen screen;
  std::shared_ptr<spdlog::sinks::sink> sink;
  {
    Progress progress(200, 0, screen.terminal());
    sink = progress.sink();
    spdlog::logger logger("test", sink);
    logger.set_pattern("%l: %v");
    progress.report(sample(10));
    logger.warn("slow disk");
    const auto lines = screen.lines();
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0], "warning: slow disk");
    EXPECT_THAT(lines[1], HasSubstr(" 10/200"));
  }
  spdlog::logger logger("test", sink);
  logger.set_pattern("%v");
  logger.info("after");
  sink.reset();
  EXPECT_THAT(screen.raw(), HasSubstr("after\n"));
}

TEST(ProgressSink, LinesOfSeveralThreadsStayWhole) {
  const Screen screen;
  Progress progress(200, 0, screen.terminal());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) progress.print("a whole line");
    });
  }
  for (int step = 1; step <= 50; ++step) progress.report(sample(step));
  for (auto& thread : threads) thread.join();
  const auto lines = screen.lines();
  ASSERT_EQ(lines.size(), 201u);
  for (std::size_t i = 0; i < 200; ++i) ASSERT_EQ(lines[i], "a whole line");
}

}  // namespace
}  // namespace plait::train
