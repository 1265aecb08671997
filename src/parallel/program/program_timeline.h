// When every instruction of every rank's program runs, if each runs as early as it can.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/program/program_set.h"

namespace plait::parallel {

struct TimedInstruction {
  double begin = 0, end = 0;
};

// An instruction at the head of its stream that cannot run.
struct BlockedInstruction {
  int rank = 0, instruction = 0;
  std::string reason;  // "waits for rank 2 to receive it"
};

struct ProgramTimeline {
  std::vector<std::vector<std::optional<TimedInstruction>>> ranks;  // [rank][step × instructions + index]; nothing: never ran
  double end = 0;
  // The instructions that wait for each other in a deadlock, each for the next; the last one waits for one of those before it,
  // or for something that never happens. Empty if there is no deadlock.
  std::vector<BlockedInstruction> deadlock;
};

// The time that an instruction takes, in any unit.
using InstructionCost = std::function<double(int rank, int index)>;

// Runs `steps` optimizer steps. An instruction runs when it is at the head of its stream and what it waits for is done. A send
// or receive also needs its other end to have reached it, and a collective all ranks of its group. So nothing is buffered on
// the way: programs that run here run with any buffering. Messages between two ranks match in the order in which each side
// lists them. Indices, streams and peers must be valid; programs need not be correct otherwise.
ProgramTimeline simulate(const ProgramSet& set, int steps, const InstructionCost& cost);

}  // namespace plait::parallel
