// What a study shows of itself on a terminal.
#include "study/display.h"

#include <gmock/gmock.h>

#include "study_files.h"

namespace plait::study {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

TEST(StudyDisplay, ADryRunSaysOneTimeOfOneNumberOfRounds) {
  const auto shown = [](const std::string& rounds) {
    const Config config = test::study_config("/nowhere", "rounds: " + rounds + ", until: none");
    return dry_run_table(config, {test::point(config, 0, 1, 10)}, 80);
  };
  EXPECT_THAT(shown("1"), AllOf(HasSubstr("1 point: 1 measured, 0 pruned; about "), EndsWith(" at 1 round of each\n")));
  EXPECT_THAT(shown("3..5"), AllOf(HasSubstr(" at 3 rounds of each, "), EndsWith(" at 5\n")));
}

}  // namespace
}  // namespace plait::study
