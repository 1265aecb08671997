#include "parallel/program/program_set.h"

#include <algorithm>
#include <set>

namespace plait::parallel {

ProgramSet condensed(const ProgramSet& set) {
  const Layout& layout = set.layout;
  const auto program_of = [&](int rank) { return set.program_of[static_cast<std::size_t>(rank)]; };
  ProgramSet smaller = set;
  for (const Axis axis : layout.axes()) {
    if (axis == stage_axis) continue;
    bool same = true;
    for (int rank = 0; rank < layout.ranks(); ++rank)
      same = same && program_of(rank) == program_of(layout.moved(rank, axis, 0));
    if (same) smaller.layout = smaller.layout.resized(axis, std::min(2, layout.size(axis)));
  }
  smaller.program_of.clear();
  for (int rank = 0; rank < smaller.layout.ranks(); ++rank) {
    smaller.program_of.push_back(set.program_of[static_cast<std::size_t>(layout.rank(smaller.layout.coordinates(rank)))]);
  }
  return smaller;
}

std::vector<GroupStream> groups_of(const ProgramSet& set) {
  std::set<GroupStream> groups;
  for (const RankProgram& of : set.programs) {
    for (const Instruction& i : of.program.instructions) {
      if (const auto group = collective_group(i)) groups.insert(*group);
    }
  }
  return {groups.begin(), groups.end()};
}

bool is_send(InstructionKind kind) {
  return kind == InstructionKind::send_activation || kind == InstructionKind::send_gradient;
}

bool is_receive(InstructionKind kind) {
  return kind == InstructionKind::receive_activation || kind == InstructionKind::receive_gradient;
}

std::pair<int, int> place_received(const Instruction& receive) {
  return {receive.chunk, receive.kind == InstructionKind::receive_activation ? receive.input_slot : receive.gradient_in};
}

std::pair<int, int> place_filled(const Instruction& send) { return {send.peer_chunk, send.peer_slot}; }

}  // namespace plait::parallel
