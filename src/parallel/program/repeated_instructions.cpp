#include "parallel/program/repeated_instructions.h"

#include <algorithm>
#include <map>

namespace plait::parallel {
namespace {

bool computes(const Instruction& i) {
  return i.kind == InstructionKind::forward || i.kind == InstructionKind::loss || i.kind == InstructionKind::backward_input ||
         i.kind == InstructionKind::backward_weight;
}

}  // namespace

std::vector<std::vector<int>> repeated_instructions(const Program& program) {
  std::map<Instruction, std::vector<int>> alike;
  for (int n = 0; n < static_cast<int>(program.instructions.size()); ++n) {
    if (!computes(program.at(n))) continue;
    Instruction i = program.at(n);
    i.micro_batch = -1;
    i.waits.clear();
    alike[std::move(i)].push_back(n);
  }
  std::vector<std::vector<int>> lists;
  for (auto& [instruction, list] : alike) lists.push_back(std::move(list));
  std::ranges::sort(lists);
  return lists;
}

}  // namespace plait::parallel
