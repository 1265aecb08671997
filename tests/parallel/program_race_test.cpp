// What makes the layout tests a proof under ThreadSanitizer: it reports a program from which waits are missing.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

namespace plait::parallel {
namespace {

[[maybe_unused]] int exit_status_of(const std::string& arguments) {
  const int status = std::system((std::string(PLAIT_DROPPED_PROGRAM_WAIT) + " " + arguments + " >/dev/null 2>&1").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ProgramRace, ThreadSanitizerSeesADroppedWait) {
#ifdef __SANITIZE_THREAD__
  EXPECT_EQ(exit_status_of("keep"), 0);
  constexpr int race_found = 66;  // ThreadSanitizer's exit status
  EXPECT_EQ(exit_status_of("drop"), race_found);
#else
  GTEST_SKIP() << "not a ThreadSanitizer build (preset cpu-tsan)";
#endif
}

}  // namespace
}  // namespace plait::parallel
