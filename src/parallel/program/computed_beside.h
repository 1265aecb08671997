// What is computed while an exchange is under way: from where its input is there to where its result is needed.
#pragma once

#include "parallel/program/program.h"

namespace plait::parallel {

// Fills Instruction::beside of a program whose waits are filled.
void find_computed_beside(Program& program);

}  // namespace plait::parallel
