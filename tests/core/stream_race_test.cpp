// The tests of everything that overlaps rest on this: ThreadSanitizer reports a forgotten wait between two host streams.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

namespace plait {
namespace {

[[maybe_unused]] int exit_status_of(const std::string& arguments) {
  const int status = std::system((std::string(PLAIT_DROPPED_WAIT) + " " + arguments + " >/dev/null 2>&1").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(StreamRaceTest, ThreadSanitizerSeesADroppedWait) {
#ifdef __SANITIZE_THREAD__
  EXPECT_EQ(exit_status_of("keep"), 0);
  constexpr int race_found = 66;  // ThreadSanitizer's exit status
  EXPECT_EQ(exit_status_of("drop"), race_found);
#else
  GTEST_SKIP() << "not a ThreadSanitizer build (preset cpu-tsan)";
#endif
}

}  // namespace
}  // namespace plait
