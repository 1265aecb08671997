// Checks of what ranks do together: messages and collectives match, and nobody waits in a circle.
#include <algorithm>
#include <map>
#include <tuple>

#include "parallel/program/program_timeline.h"
#include "parallel/proof/validator_checks.h"

namespace plait::parallel {
namespace {

// The messages of a stream, in order.
std::vector<int> messages_on(const Program& program, const StreamSpec& stream) {
  std::vector<int> list;
  for (int n = 0; n < static_cast<int>(program.instructions.size()); ++n) {
    const InstructionKind kind = program.at(n).kind;
    if ((is_send(kind) || is_receive(kind)) && program.stream_of(program.at(n)) == stream) list.push_back(n);
  }
  return list;
}

// The content of a message, the same for both ends: an output, or the gradient of one.
struct Cargo {
  bool gradient = false;
  int micro_batch = 0, stage = 0;
  friend bool operator==(const Cargo&, const Cargo&) = default;
};

Cargo cargo(const Program& program, const Instruction& i) {
  const bool gradient = i.kind == InstructionKind::send_gradient || i.kind == InstructionKind::receive_gradient;
  const bool upstream = i.kind == InstructionKind::send_gradient || i.kind == InstructionKind::receive_activation;
  return {gradient, i.micro_batch, program.chunk_of(i).stage - (upstream ? 1 : 0)};
}

std::string to_string(const Cargo& cargo) {
  return std::string(cargo.gradient ? "the gradient of the" : "the") + " output of stage " + std::to_string(cargo.stage) +
         ", micro-batch " + std::to_string(cargo.micro_batch);
}

std::string to_string(const std::pair<int, int>& place) {
  return "slot " + std::to_string(place.second) + " of chunk " + std::to_string(place.first);
}

void check_link(const ProgramSet& set, int from, int to, ProblemList& problems) {
  const Program &sender = set.program(from), &receiver = set.program(to);
  const std::vector<int> sent = messages_on(sender, {StreamRole::send, set.layout.coordinate(to, stage_axis)});
  const std::vector<int> received = messages_on(receiver, {StreamRole::receive, set.layout.coordinate(from, stage_axis)});
  for (std::size_t n = 0; n < std::max(sent.size(), received.size()); ++n) {
    if (n >= received.size()) {
      return problems.add(from, sent[n],
                          "is message " + std::to_string(n) + " to rank " + std::to_string(to) + ", which receives only " +
                              std::to_string(received.size()));
    }
    if (n >= sent.size()) {
      return problems.add(to, received[n],
                          "is message " + std::to_string(n) + " from rank " + std::to_string(from) + ", which sends only " +
                              std::to_string(sent.size()));
    }
    const Instruction &send = sender.at(sent[n]), &receive = receiver.at(received[n]);
    const Cargo goes = cargo(sender, send), comes = cargo(receiver, receive);
    // Later messages are likely off as well, so only the first is reported.
    if (goes != comes) {
      return problems.add(to, received[n],
                          "receives " + to_string(comes) + ", but what rank " + std::to_string(from) + " sends next is " +
                              to_string(goes) + " (" + name_of(sender, sent[n]) + ")");
    }
    if (place_filled(send) == place_received(receive)) continue;
    return problems.add(from, sent[n],
                        "fills " + to_string(place_filled(send)) + " of rank " + std::to_string(to) +
                            ", which receives it in " + to_string(place_received(receive)));
  }
}

// The groups of a rank that may share a communicator: those with the same ranks and, as far as streams tell, the same purpose.
std::vector<std::vector<GroupStream>> communicators(const ProgramSet& set, int rank) {
  std::map<std::pair<StreamRole, std::vector<int>>, std::vector<GroupStream>> by_members;
  for (const GroupStream& group : groups_of(set)) by_members[{group.role, set.members(group.group, rank)}].push_back(group);
  std::vector<std::vector<GroupStream>> list;
  for (auto& [members, of_same] : by_members) list.push_back(std::move(of_same));
  return list;
}

// The collectives that a rank runs on these groups, in order.
std::vector<int> collectives_of(const Program& program, const std::vector<GroupStream>& groups) {
  std::vector<int> list;
  for (int n = 0; n < static_cast<int>(program.instructions.size()); ++n) {
    const auto group = collective_group(program.at(n));
    if (group && std::find(groups.begin(), groups.end(), *group) != groups.end()) list.push_back(n);
  }
  return list;
}

// The properties of a collective that must be the same on all members. Ranks of other stages hold other buckets; the buckets
// that they share have only their sizes in common.
auto signature(const ProgramSet& set, int rank, const Instruction& i) {
  const Collective& c = i.collective;
  const bool same_stages = !c.group.axes.contains(stage_axis);
  const std::vector<Bucket>& buckets = set.of(rank).buckets;
  const std::int64_t elements = i.bucket < 0 ? c.elements : buckets[static_cast<std::size_t>(i.bucket)].range.count;
  return std::tuple(c.operation, c.group, c.purpose, c.tensor, c.dtype, c.into_free, i.micro_batch, i.segment,
                    same_stages ? i.bucket : -1, elements);
}

void check_communicator(const ProgramSet& set, int rank, const std::vector<GroupStream>& groups, ProblemList& problems) {
  const std::vector<int> members = set.members(groups.front().group, rank);
  if (members.size() == 1) return;
  const std::string name = "the " + to_string(groups.front().group) + " group";
  const std::vector<int> mine = collectives_of(set.program(rank), groups);
  for (const int n : mine) {
    if (set.program(rank).at(n).stream == set.program(rank).at(mine.front()).stream) continue;
    problems.add(rank, n, "is on another stream than " + name_of(set.program(rank), mine.front()) + ", of the same ranks");
    return;
  }
  // Every member is compared with the first.
  if (rank == members.front()) return;
  const Program& first = set.program(members.front());
  const std::vector<int> theirs = collectives_of(first, groups);
  for (std::size_t n = 0; n < std::max(mine.size(), theirs.size()); ++n) {
    if (n >= mine.size()) {
      return problems.add(members.front(), theirs[n], "has no counterpart on rank " + std::to_string(rank) + " of " + name);
    }
    const std::string other = "rank " + std::to_string(members.front()) + " of " + name;
    if (n >= theirs.size()) return problems.add(rank, mine[n], "has no counterpart on " + other);
    if (signature(set, rank, set.program(rank).at(mine[n])) == signature(set, members.front(), first.at(theirs[n]))) continue;
    return problems.add(rank, mine[n], "meets " + name_of(first, theirs[n]) + " on " + other);
  }
}

}  // namespace

void check_messages(const ProgramSet& set, ProblemList& problems) {
  for (int from = 0; from < set.layout.ranks(); ++from) {
    const int mine = set.layout.coordinate(from, stage_axis);
    for (int peer = 0; peer < set.layout.size(stage_axis); ++peer) {
      if (peer != mine) check_link(set, from, set.layout.moved(from, stage_axis, peer), problems);
    }
  }
}

void check_collectives(const ProgramSet& set, ProblemList& problems) {
  for (int rank = 0; rank < set.layout.ranks(); ++rank) {
    for (const std::vector<GroupStream>& groups : communicators(set, rank)) check_communicator(set, rank, groups, problems);
  }
}

void check_deadlock(const ProgramSet& set, ProblemList& problems) {
  const ProgramTimeline timeline = simulate(set, validated_steps, [](int, int) { return 0.0; });
  if (timeline.deadlock.empty()) return;
  const BlockedInstruction& first = timeline.deadlock.front();
  std::string words = "deadlock: " + first.reason;
  for (const BlockedInstruction& b : timeline.deadlock) {
    if (&b == &first) continue;
    words += "; rank " + std::to_string(b.rank) + ", " + name_of(set.program(b.rank), b.instruction) + ", " + b.reason;
  }
  problems.add(first.rank, first.instruction, words);
}

}  // namespace plait::parallel
