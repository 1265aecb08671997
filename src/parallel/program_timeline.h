// When every instruction of every rank's program runs, if each runs as early as it can.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/program_set.h"

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
  // Empty unless there is a deadlock: who waits for whom, each for the next one; the last for one of those before it, or for
  // something that never comes.
  std::vector<BlockedInstruction> deadlock;
};

// What an instruction costs, in any unit.
using InstructionCost = std::function<double(int rank, int index)>;

// Runs `steps` optimizer steps. An instruction runs when it is at the head of its stream and what it waits for is done; a send
// or a receive only together with its other end, and a collective only together with the other ranks of its group, once each
// has come to it. So nothing is buffered on the way: what runs here runs with any buffering. Messages between two ranks meet in
// the order in which each lists them. Indices, streams and peers must be valid; nothing else has to be.
ProgramTimeline simulate(const ProgramSet& set, int steps, const InstructionCost& cost);

}  // namespace plait::parallel
