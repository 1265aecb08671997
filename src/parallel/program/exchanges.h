// Exchanges: the collectives of a pass between two of its computations, with the norms between them. An exchange is timed,
// priced and drawn as one.
#pragma once

#include <vector>

#include "parallel/program/program.h"

namespace plait::parallel {

// Consecutive instructions of a program, all on one stream: at least one collective, and the other instructions from the same
// list of steps (model/segments.h).
struct Exchange {
  int first = 0, last = 0;
};

// All of them, in the order of the program.
std::vector<Exchange> exchanges_of(const Program& program);

// Index of the first collective of an exchange.
int first_collective(const Program& program, const Exchange& exchange);

}  // namespace plait::parallel
