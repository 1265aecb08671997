// Waits, which follow from the buffers that instructions use, and what may therefore run at the same time.
#pragma once

#include <cstddef>
#include <vector>

#include "parallel/program/program.h"

namespace plait::parallel {

// Fills the waits of a program from its buffer uses, this step's and the previous one's, without waits that others imply. Waits
// that are there already stay. `buckets`: those of the rank's flat layout.
void derive_waits(Program& program, const std::vector<Bucket>& buckets);

// Fills Instruction::beside of a program whose waits are filled: the work computed while an exchange is under way, from the
// moment its input is there to the moment its result is needed.
void find_computed_beside(Program& program);

// The order in which a program's instructions run, as far as its streams and waits, which are filled, settle it, in every step
// but the first.
class ProgramOrder {
 public:
  explicit ProgramOrder(const Program& program);

  // The last instruction of `stream` that is sure to have run when instruction `n` begins: its index, or its index - count() if
  // it ran in the step before. -count() - 1 if there is none in these two steps.
  int last_before(int n, int stream) const;
  int count() const { return count_; }

 private:
  int count_;
  std::size_t streams_;
  std::vector<int> known_;  // [instruction][stream]
};

}  // namespace plait::parallel
