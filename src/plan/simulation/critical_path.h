// What a step's time is made of: the chain of instructions of which each began when the one before it was over.
//
// Backwards from the instruction that ends the step: an instruction began because the last of its parties reached it, and that
// party reached it because the instruction before it on its stream, or one that it waits for, was over. The path never stands
// still, so it has no waiting in it: what waited is elsewhere.
#pragma once

#include <string>
#include <vector>

#include "parallel/program/program_set.h"

namespace plait::plan {

enum class StartCause {
  stream,      // the one before on the stream was over
  awaited,     // an instruction of another stream was over
  step_began,  // it was going on when the step began
};

// Seconds as in InstructionTimes. What takes no time is left out, so causes need not be listed themselves.
struct CriticalRun {
  // A message or collective is shown on the rank where what follows waited for it.
  int rank = 0, instruction = 0;
  int step = 0;  // 0: the last one; -1: left over from the one before
  double begin = 0, end = 0;
  // Who began it, and after what: `last_rank` came last of sender and receiver, or of a group, because its instruction
  // `cause_of` was over. `rank` itself where it was the last, or is alone.
  int last_rank = 0;
  StartCause cause = StartCause::stream;
  int cause_of = -1;
};

// "1.250 to 2.500 ms, rank 1: receive_activation micro-batch 0 chunk 0, which rank 0 reached last, when forward micro-batch 0
// segment 1 was over".
std::string to_string(const CriticalRun& run, const parallel::ProgramSet& set);

struct CriticalSums {
  double compute = 0;     // as long as it takes alone
  double slowdown = 0;    // of compute, by communication beside it
  double copy = 0;        // batches on their way to the device
  double latency = 0;     // of messages and collectives, before bytes move; norms of exchanges between ranks too
  double message = 0;     // bytes, as if the way were their own
  double collective = 0;  // bytes, the same; those of exchanges too
  double sharing = 0;     // bytes, what sharing channels adds
  double total() const { return compute + slowdown + copy + latency + message + collective + sharing; }
};

}  // namespace plait::plan
