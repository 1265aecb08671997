// What makes the tests a proof under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer: they end a program at its
// first fault. core/stream_race_test.cpp shows the same of ThreadSanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "core/temporary_directory.h"
#include "test_paths.h"

namespace plait {
namespace {

TEST(Sanitizers, EndAProgramAtItsFirstFault) {
#ifdef __SANITIZE_ADDRESS__
  const test::TemporaryDirectory folder;
  const std::string errors = folder.path() + "/errors";
  const auto status_of = [&](const std::string& fault) {
    const int status = std::system((std::string(test_paths::planted_fault) + " " + fault + " >/dev/null 2>" + errors).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(status_of("none"), 0);
  const std::map<std::string, std::string> reports = {{"past-the-end", "heap-buffer-overflow"},
                                                      {"freed", "heap-use-after-free"},
                                                      {"leaked", "detected memory leaks"},
                                                      {"overflow", "signed integer overflow"},
                                                      {"shifted", "shift exponent 40 is too large"}};
  for (const auto& [fault, report] : reports) {
    EXPECT_NE(status_of(fault), 0) << fault;
    std::ifstream file(errors);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_THAT(text, testing::HasSubstr(report)) << fault;
  }
#else
  GTEST_SKIP() << "not a build with AddressSanitizer (preset cpu-debug)";
#endif
}

}  // namespace
}  // namespace plait
