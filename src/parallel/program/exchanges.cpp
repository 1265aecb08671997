#include "parallel/program/exchanges.h"

#include <algorithm>
#include <tuple>

namespace plait::parallel {
namespace {

// True for instructions that may be in an exchange: those of a pass outside of its segments' computations.
bool lies_between(const Instruction& i) {
  switch (i.kind) {
    case InstructionKind::add_residual:
    case InstructionKind::norm:
    case InstructionKind::round_norm:
    case InstructionKind::norm_backward:
    case InstructionKind::round_gradient: return true;
    default: return communicates_in_pass(i);
  }
}

auto list_of(const Instruction& i) { return std::tuple(i.stream, i.micro_batch, i.chunk, i.segment, is_in_backward(i)); }

}  // namespace

std::vector<Exchange> exchanges_of(const Program& program) {
  std::vector<Exchange> list;
  const int count = static_cast<int>(program.instructions.size());
  for (int first = 0, end = 0; first < count; first = end) {
    end = first + 1;
    if (!lies_between(program.at(first))) continue;
    bool communicates = is_collective(program.at(first));
    for (; end < count && lies_between(program.at(end)) && list_of(program.at(end)) == list_of(program.at(first)); ++end)
      communicates = communicates || is_collective(program.at(end));
    if (communicates) list.push_back({first, end - 1});
  }
  return list;
}

int first_collective(const Program& program, const Exchange& exchange) {
  int n = exchange.first;
  while (!is_collective(program.at(n))) ++n;
  return n;
}

}  // namespace plait::parallel
