// What follows from the buffers that instructions use: what each has to wait for, and so what may run at the same time.
#pragma once

#include <cstddef>
#include <vector>

#include "parallel/program/program.h"

namespace plait::parallel {

// Fills the waits of a program from its buffer uses, this step's and the previous one's; leaves out those that others imply.
// Waits that are there already stay. `buckets`: of the rank's flat layout.
void derive_waits(Program& program, const std::vector<Bucket>& buckets);

// Fills Instruction::beside of a program whose waits are filled: what is computed while an exchange is under way, from where
// its input is there to where its result is needed.
void find_computed_beside(Program& program);

// What streams and waits of a program, which are filled, say of the order in which its instructions run, in every step but the
// first.
class ProgramOrder {
 public:
  explicit ProgramOrder(const Program& program);

  // The last instruction of `stream` that is sure to have run when instruction `n` begins; as n - count() where it is one of
  // the step before; nothing before that step is looked at: -count() - 1.
  int last_before(int n, int stream) const;
  int count() const { return count_; }

 private:
  int count_;
  std::size_t streams_;
  std::vector<int> known_;  // [instruction][stream]
};

}  // namespace plait::parallel
