// The tests of everything that overlaps rest on this: ThreadSanitizer reports a forgotten wait between two host streams.
#include "core/dropped_wait_check.h"

namespace plait {
namespace {

TEST(StreamRaceTest, ThreadSanitizerSeesADroppedWait) { expect_race_only_when_dropped(PLAIT_DROPPED_WAIT); }

}  // namespace
}  // namespace plait
