// The parts of the validator (parallel/proof/validator.h).
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "parallel/proof/validator.h"

namespace plait::parallel {

// Collects problems; the second step of a program repeats those of the first, which are kept once.
class ProblemList {
 public:
  void add(int rank, int instruction, std::string words) {
    if (known_.insert({{rank, instruction}, words}).second) list_.push_back({rank, instruction, std::move(words)});
  }
  bool empty() const { return list_.empty(); }
  std::vector<ProgramProblem> take() { return std::move(list_); }

 private:
  std::set<std::pair<std::pair<int, int>, std::string>> known_;
  std::vector<ProgramProblem> list_;
};

// "instruction 57, backward_weight micro-batch 0 segment 3"
std::string name_of(const Program& program, int index);

// For each program, the first rank that runs it.
std::vector<int> ranks_of_programs(const ProgramSet& set);

// Two steps cover all: a wait reaches back at most one step.
constexpr int validated_steps = 2;

// All checks below may rely on what this one establishes: every index is in bounds, every instruction belongs to the rank and
// is on a stream that may run it, and the stages make up the model.
void check_structure(const ProgramSet& set, ProblemList& problems);

// Checks of one rank alone.
void check_complete(const ProgramSet& set, int rank, ProblemList& problems);  // each instruction is there once
void check_values(const ProgramSet& set, int rank, ProblemList& problems);    // buffers hold the values that are read
void check_races(const ProgramSet& set, int rank, ProblemList& problems);     // no order that streams allow breaks that

// Checks between ranks.
void check_messages(const ProgramSet& set, ProblemList& problems);
void check_collectives(const ProgramSet& set, ProblemList& problems);
void check_deadlock(const ProgramSet& set, ProblemList& problems);

}  // namespace plait::parallel
