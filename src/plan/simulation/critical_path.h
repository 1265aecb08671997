// The critical path of a step: a chain of instructions, each of which began when the one before it was over.
//
// It is traced backwards from the instruction that ends the step. An instruction began because its last party reached it, and
// that party reached it because the previous instruction on its stream, or one that it waits for, was over. The path never
// stands still, so it contains no waiting: other ranks wait, not the path.
#pragma once

#include <string>
#include <vector>

#include "parallel/program/program_set.h"

namespace plait::plan {

enum class StartCause {
  stream,      // the previous instruction on the stream was over
  awaited,     // an instruction of another stream was over
  step_began,  // the step began while it was running
};

// Seconds as in InstructionTimes. Runs that take no time are left out, so a cause need not be in the list.
struct CriticalRun {
  // A message or collective is shown on the rank whose next instruction waited for it.
  int rank = 0, instruction = 0;
  int step = 0;  // 0: the last one; -1: left over from the one before
  double begin = 0, end = 0;
  // The rank that began it, and the cause: of sender and receiver, or of a group, `last_rank` came last, because its
  // instruction `cause_of` was over. Equals `rank` if that came last, or is alone.
  int last_rank = 0;
  StartCause cause = StartCause::stream;
  int cause_of = -1;
};

// "1.250 to 2.500 ms, rank 1: receive_activation micro-batch 0 chunk 0, which rank 0 reached last, when forward micro-batch 0
// segment 1 was over".
std::string to_string(const CriticalRun& run, const parallel::ProgramSet& set);

struct CriticalSums {
  double compute = 0;     // time that it takes alone
  double slowdown = 0;    // of compute, by communication beside it
  double copy = 0;        // batches on their way to the device
  double latency = 0;     // of messages and collectives before bytes move, with norms of exchanges between ranks
  double message = 0;     // bytes, as if they had the way to themselves
  double collective = 0;  // bytes likewise, with those of exchanges
  double sharing = 0;     // bytes: the extra time by shared channels
  double total() const { return compute + slowdown + copy + latency + message + collective + sharing; }
};

}  // namespace plait::plan
