// Which instructions of a program are the same work, so that a rank may launch each of them as one CUDA graph
// (runtime/instruction_graphs.h).
#pragma once

#include <vector>

#include "parallel/program/program.h"

namespace plait::parallel {

// Instructions of segments that do the same on the same memory, as in micro-batches that have the same slots: a list for each
// work, in the order of their first. There are as many lists for any number of micro-batches.
std::vector<std::vector<int>> repeated_instructions(const Program& program);

}  // namespace plait::parallel
