// The times at which the passes of a schedule run, and their consequences for waiting and memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace plait::parallel {

// The time of a pass, in any unit. A whole backward takes both parts. `send`: from the end of a pass to the moment at which
// another rank can use its result; nothing within a rank.
struct PassCosts {
  double forward = 1, backward_input = 1, backward_weight = 1;
  double send = 0;
};

struct TimedPass {
  Pass pass;
  double begin = 0, end = 0;
};

struct Timeline {
  std::vector<std::vector<TimedPass>> ranks;
  double end = 0;         // from the first pass to the end of the last, over all ranks
  bool complete = false;  // everything is computed exactly once
  // The share of ranks × end in which ranks stand idle. It includes a rank's waits before its first pass and after its last,
  // because an optimizer step that clips gradients by their norm begins and ends on all ranks together.
  double bubble_fraction() const;
};

// Runs every pass as early as its rank's order and its inputs allow. `costs` are per stage pass; if they are those of a whole
// rank's share, a chunk costs 1 / chunks of them (the caller divides). InternalError if the schedule cannot run (it deadlocks)
// or does not compute everything exactly once. Braided passes stand one after the other, and what they yield is there at the
// end of both.
Timeline simulate(const Schedule& schedule, const PassCosts& costs = {});

// The same for passes whose times differ from stage to stage.
using PassDuration = std::function<double(int rank, const Pass& pass)>;
Timeline simulate(const Schedule& schedule, const PassDuration& duration, double send);

// The same, but only as far as ranks get: a rank whose list of timed passes is shorter than its passes cannot begin the turn
// behind them.
Timeline play(const Schedule& schedule, const PassDuration& duration, double send);

// The largest number of micro-batches for which `rank` has done some forward and not yet the backward (weight part included),
// summed over its chunks.
int peak_in_flight(const Schedule& schedule, int rank);

// One line per rank, one column per unit of time: "F0 F1 .. B0 -- W0", ".." idle, "--" a pass going on, B a backward or its
// input part; with several chunks "F0a" for the first, "F0b" for the second. Needs whole-number costs.
std::string draw(const Schedule& schedule, const PassCosts& costs = {});

}  // namespace plait::parallel
