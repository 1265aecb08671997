// What an instruction of a program costs, for the simulator: plain data made by a cost model (plan/step_costs.h).
#pragma once

#include <functional>

namespace plait::plan {

// Seconds and bytes of one instruction on one rank.
//
// Compute, copies and updates: `seconds` only. A message: `seconds` before the first byte moves (what it costs to get it
// going), then `bytes` from sender to receiver; the sender's work counts, the receiver's is not asked for. A collective:
// `seconds` from the time when all have come to the time when bytes move (all rounds' latencies together), then `bytes` from
// each member of the ring to the next. The slowest member's numbers count, each by itself. Several in one instruction are as if
// they were one. The norm and the residual of an exchange are in its `seconds`. Of a group of one, only `seconds` count.
struct Work {
  double seconds = 0;
  double bytes = 0;
  // The most GB/s that one transfer reaches, however wide its way is; 0: what its way gives.
  double most_gb_per_s = 0;
  // Messages and collectives: how much longer compute takes, on all ranks that take part, while this is going on: 0.05 is 5 %.
  // What goes on at the same time adds up.
  double compute_slowdown = 0;
  // The other way round: how much longer `seconds` takes while one of them computes, as its kernels wait for what those hold.
  double slowed_by_compute = 0;
  friend bool operator==(const Work&, const Work&) = default;
};

// Of instruction `index` of `rank`'s program, in a step after the first few. The same whenever it is asked.
using WorkOf = std::function<Work(int rank, int index)>;

}  // namespace plait::plan
