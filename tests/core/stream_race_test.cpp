// The tests of everything that overlaps rest on this: ThreadSanitizer reports a forgotten wait between two host streams.
#include "core/dropped_wait_check.h"
#include "test_paths.h"

namespace plait {
namespace {

TEST(StreamRaceTest, ThreadSanitizerSeesADroppedWait) { expect_race_only_when_dropped(test_paths::dropped_wait); }

}  // namespace
}  // namespace plait
