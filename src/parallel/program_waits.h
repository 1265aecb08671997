// What an instruction has to wait for follows from the buffers that it uses.
#pragma once

#include <vector>

#include "parallel/program.h"

namespace plait::parallel {

// Fills the waits of a program from its buffer uses, this step's and the previous one's; leaves out those that others imply.
// Waits that are there already stay. `buckets`: of the rank's flat layout.
void derive_waits(Program& program, const std::vector<Bucket>& buckets);

}  // namespace plait::parallel
