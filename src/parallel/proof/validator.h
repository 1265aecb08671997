// Proves programs before anything runs them. Pure, and independent of the code that generated them: it knows only the meaning
// of instructions.
//
// Each rank's program is executed symbolically over two steps, with micro-batch numbers as values: every read must find the
// value it needs, and every gradient must be written, reduced and applied exactly once. Instructions on different streams that
// use the same buffer must be ordered, within a step and between steps. Over all ranks, messages and collectives must match,
// and there must be no circular wait even if no message is buffered on its way. What is proved for two steps holds for all,
// because a wait reaches back at most one step.
#pragma once

#include <string>
#include <vector>

#include "parallel/program/program_set.h"

namespace plait::parallel {

struct ProgramProblem {
  int rank = 0;
  int instruction = -1;  // index into the rank's program; -1: the program as a whole, or a missing instruction
  std::string words;
};
// "rank 3 (pipeline 1, data 0, tensor 1), instruction 57, backward_weight micro-batch 0 segment 3: ..."
std::string to_string(const ProgramProblem& problem, const ProgramSet& set);

// All problems, the most informative first; none if the programs are correct.
std::vector<ProgramProblem> validate(const ProgramSet& set);

// Throws InternalError with the first problem and a picture of the step (parallel/program/program_grid.h) that marks it.
void require_valid(const ProgramSet& set);

}  // namespace plait::parallel
