// The cost of a program's instruction, for the simulator: plain data made by a cost model (plan/step_costs.h).
#pragma once

#include <functional>

namespace plait::plan {

// Seconds and bytes of one instruction on one rank.
//
// Compute, copies and updates have `seconds` only. A message takes `seconds` before the first byte moves, then sends `bytes`
// from sender to receiver; only the sender's work counts. A collective takes `seconds` from the arrival of its last member
// until bytes move (the latencies of all rounds), then sends `bytes` from each member of the ring to the next. Each number is
// that of the slowest member for it. Several collectives in one instruction count as one. The `seconds` of an exchange include
// its norm and residual. In a group of one only `seconds` count.
struct Work {
  double seconds = 0;
  double bytes = 0;
  // The most GB/s that one transfer reaches, however wide its way is; 0: as much as its way gives.
  double most_gb_per_s = 0;
  // Messages and collectives: how much longer compute takes meanwhile on all ranks that take part; 0.05 is 5 %. Simultaneous
  // slowdowns add up.
  double compute_slowdown = 0;
  // The reverse: how much longer `seconds` takes while a participating rank computes, since its kernels wait for the SMs that
  // compute holds.
  double slowed_by_compute = 0;
  friend bool operator==(const Work&, const Work&) = default;
};

// The work of instruction `index` of `rank`'s program, in a step after the first few. Each call must return the same.
using WorkOf = std::function<Work(int rank, int index)>;

}  // namespace plait::plan
