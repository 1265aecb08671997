// ThreadSanitizer reports a program from which waits are missing. So the layout tests under it prove that none are.
#include "core/dropped_wait_check.h"
#include "test_paths.h"

namespace plait::runtime {
namespace {

TEST(ProgramRace, ThreadSanitizerSeesADroppedWait) { expect_race_only_when_dropped(test_paths::dropped_program_wait); }

}  // namespace
}  // namespace plait::runtime
