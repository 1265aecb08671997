// For tests that show that ThreadSanitizer reports a forgotten wait.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

namespace plait {

// `program` is clean when called with "keep" and has a race when called with "drop". Skips in builds without ThreadSanitizer.
inline void expect_race_only_when_dropped([[maybe_unused]] const std::string& program) {
#ifdef __SANITIZE_THREAD__
  const auto exit_status_of = [&](const char* argument) {
    const int status = std::system((program + " " + argument + " >/dev/null 2>&1").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(exit_status_of("keep"), 0);
  constexpr int race_found = 66;  // ThreadSanitizer's exit status
  EXPECT_EQ(exit_status_of("drop"), race_found);
#else
  GTEST_SKIP() << "not a ThreadSanitizer build (preset cpu-tsan)";
#endif
}

}  // namespace plait
