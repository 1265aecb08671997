#include "parallel/program/computed_beside.h"

#include <algorithm>

namespace plait::parallel {
namespace {

// In quarters of a block. A segment is half a block, or like one; in parts, each of them has its share of that.
int quarters(const Program& program, const Instruction& i) {
  if (!computes_segment(i.kind)) return 0;
  return i.kind == InstructionKind::backward_weight ? 2 : 2 / program.segment(i.segment).parts;
}

}  // namespace

void find_computed_beside(Program& program) {
  const int count = static_cast<int>(program.instructions.size());
  const auto is_computed = [&](int n) { return program.stream_of(program.at(n)).role == StreamRole::compute; };
  int input = -1;  // the last computed instruction that exchanges so far have waited for
  for (int n = 0; n < count; ++n) {
    Instruction& i = program.instructions[static_cast<std::size_t>(n)];
    if (program.stream_of(i).role != StreamRole::exchange) continue;
    for (const int awaited : i.waits) {
      // A later one is the step's before it.
      if (awaited < n && is_computed(awaited)) input = std::max(input, awaited);
    }
    if (!communicates_in_pass(i)) continue;
    i.beside = 0;
    for (int k = input + 1; k < count && i.beside < most_beside; ++k) {
      if (!is_computed(k)) continue;
      const auto needs = [&](int awaited) { return awaited >= n && awaited < k && program.at(awaited).stream == i.stream; };
      if (std::ranges::any_of(program.at(k).waits, needs)) break;
      i.beside += quarters(program, program.at(k));
    }
    i.beside = std::min(i.beside, most_beside);
  }
}

}  // namespace plait::parallel
