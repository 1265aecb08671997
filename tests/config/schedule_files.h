// Schedules from files, for tests: PyTorch's own, and texts.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "config/schedule_file.h"
#include "test_paths.h"

namespace plait {

inline const std::vector<std::string> real_schedules = {"Schedule1F1B-pp4-m8", "ScheduleInterleaved1F1B-pp4-m8",
                                                        "ScheduleLoopedBFS-pp2-m8", "ScheduleZBVZeroBubble-pp4-m8",
                                                        "ScheduleDualPipeV-pp2-m8"};

// What `text` says; one that is refused fails and ends the test.
inline std::shared_ptr<const ScheduleFile> parsed_schedule(const std::string& text, const std::string& name = "test.csv") {
  std::string problem;
  auto file = parse_schedule(text, name, problem);
  EXPECT_TRUE(file) << problem;
  if (!file) throw std::runtime_error(problem);
  return file;
}

// One of real_schedules.
inline std::shared_ptr<const ScheduleFile> real_schedule(const std::string& name) {
  std::string problem;
  auto file = read_schedule_file(std::string(test_paths::source) + "/tests/config/schedules/" + name + ".csv", problem);
  EXPECT_TRUE(file) << problem;
  if (!file) throw std::runtime_error(problem);
  return file;
}

}  // namespace plait
