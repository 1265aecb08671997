// What makes the layout tests a proof under ThreadSanitizer: it reports a program from which waits are missing.
#include "core/dropped_wait_check.h"

namespace plait::runtime {
namespace {

TEST(ProgramRace, ThreadSanitizerSeesADroppedWait) { expect_race_only_when_dropped(PLAIT_DROPPED_PROGRAM_WAIT); }

}  // namespace
}  // namespace plait::runtime
