// The size of jobs that can be simulated, and the time it takes.
#include <gtest/gtest.h>

#include "large_simulation.h"

namespace plait::plan {
namespace {

using test::Measured;
using test::simulate;

#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr parallel::Layout thousand{{Axis::pipeline, 8}, {Axis::data, 16}, {Axis::tensor, 8}};
constexpr double bound_seconds = 20;  // usually 1: machines differ, and share their cores
#else
constexpr parallel::Layout thousand{{Axis::pipeline, 4}, {Axis::data, 4}, {Axis::tensor, 8}};
constexpr double bound_seconds = 60;
#endif

TEST(SimulatorScale, AThousandRanksTakeSeconds) {
  const Measured merged = simulate(thousand, 16, false, true);
  const Measured all = simulate(thousand, 16, false, false);
  EXPECT_LT(merged.simulated.classes(), thousand.ranks());
  EXPECT_EQ(merged.simulated.step_seconds, all.simulated.step_seconds);
  EXPECT_LT(merged.seconds, bound_seconds);
  EXPECT_LT(all.seconds, bound_seconds);
}

}  // namespace
}  // namespace plait::plan
