#include "parallel/program/program_timeline.h"

#include <algorithm>
#include <map>

#include "core/error.h"

namespace plait::parallel {
namespace {

constexpr int no_stream = -1;

// One stream of one rank.
struct StreamId {
  int rank = 0, stream = no_stream;
  friend bool operator==(const StreamId&, const StreamId&) = default;
};

class Simulation {
 public:
  Simulation(const ProgramSet& set, int steps, const InstructionCost& cost) : set_(set), steps_(steps), cost_(cost) {
    for (int rank = 0; rank < set.layout.ranks(); ++rank) {
      const Program& program = set.program(rank);
      Rank r{.program = &program,
             .streams = std::vector<StreamProgress>(program.streams.size()),
             .group_streams = {},
             .groups = {}};
      for (int n = 0; n < static_cast<int>(program.instructions.size()); ++n) {
        const Instruction& i = program.at(n);
        r.streams[static_cast<std::size_t>(i.stream)].list.push_back(n);
        const auto group = collective_group(i);
        if (!group) continue;
        if (r.group_streams.try_emplace(*group, i.stream).second) r.groups[*group] = set.members(group->group, rank);
      }
      ranks_.push_back(std::move(r));
      timeline_.ranks.emplace_back(program.instructions.size() * static_cast<std::size_t>(steps));
    }
  }

  ProgramTimeline run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < set_.layout.ranks(); ++rank) {
        for (int stream = 0; stream < static_cast<int>(at(rank).streams.size()); ++stream) {
          while (advance({rank, stream})) moved = true;
        }
      }
    }
    explain_deadlock();
    return std::move(timeline_);
  }

 private:
  struct StreamProgress {
    std::vector<int> list;  // its instructions in one step
    int done = 0;           // instructions done, over all steps
    double end = 0;         // end of the last one
  };
  struct Rank {
    const Program* program = nullptr;
    std::vector<StreamProgress> streams;
    std::map<GroupStream, int> group_streams;  // the stream of each group's collectives
    std::map<GroupStream, std::vector<int>> groups;
  };
  struct Head {
    int instruction = 0, step = 0;
  };

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  StreamProgress& at(StreamId id) { return at(id.rank).streams[static_cast<std::size_t>(id.stream)]; }

  std::optional<Head> head(StreamId id) {
    if (id.stream == no_stream) return std::nullopt;
    const StreamProgress& s = at(id);
    const int length = static_cast<int>(s.list.size());
    if (s.done == length * steps_) return std::nullopt;
    return Head{s.list[static_cast<std::size_t>(s.done % length)], s.done / length};
  }

  std::optional<TimedInstruction>& run_of(int rank, int instruction, int step) {
    const std::size_t first = at(rank).program->instructions.size() * static_cast<std::size_t>(step);
    return timeline_.ranks[static_cast<std::size_t>(rank)][first + static_cast<std::size_t>(instruction)];
  }

  // An instruction that this one waits for and that has not run.
  std::optional<int> awaited(int rank, Head h) {
    for (const int w : at(rank).program->at(h.instruction).waits) {
      const int step = w < h.instruction ? h.step : h.step - 1;
      if (step >= 0 && !run_of(rank, w, step)) return w;
    }
    return std::nullopt;
  }

  // The other streams that must have come to the same message or collective.
  std::vector<StreamId> partners(StreamId id, const Instruction& i) {
    std::vector<StreamId> ids;
    if (is_send(i.kind) || is_receive(i.kind)) {
      const StreamSpec& mine = at(id.rank).program->stream_of(i);
      const int peer = set_.layout.moved(id.rank, stage_axis, mine.peer);
      const StreamSpec theirs{is_send(i.kind) ? StreamRole::receive : StreamRole::send,
                              set_.layout.coordinate(id.rank, stage_axis)};
      const auto& specs = at(peer).program->streams;
      const auto it = std::find(specs.begin(), specs.end(), theirs);
      ids.push_back({peer, it == specs.end() ? no_stream : static_cast<int>(it - specs.begin())});
    } else if (const auto group = collective_group(i)) {
      for (const int member : at(id.rank).groups.at(*group)) {
        if (member == id.rank) continue;
        const auto theirs = at(member).group_streams.find(*group);
        ids.push_back({member, theirs == at(member).group_streams.end() ? no_stream : theirs->second});
      }
    }
    return ids;
  }

  // True if the head of `partner` is the other end of `i`.
  bool has_come(StreamId partner, const Instruction& i) {
    const auto h = head(partner);
    return h && collective_group(at(partner.rank).program->at(h->instruction)) == collective_group(i);
  }

  bool advance(StreamId id) {
    const auto mine = head(id);
    if (!mine || awaited(id.rank, *mine)) return false;
    const Instruction& i = at(id.rank).program->at(mine->instruction);
    std::vector<StreamId> parties = partners(id, i);
    for (const StreamId& party : parties) {
      if (!has_come(party, i) || awaited(party.rank, *head(party))) return false;
    }
    parties.push_back(id);
    double begin = 0, cost = 0;
    for (const StreamId& party : parties) {
      const Head h = *head(party);
      begin = std::max(begin, at(party).end);
      cost = std::max(cost, cost_(party.rank, h.instruction));
      for (const int w : at(party.rank).program->at(h.instruction).waits) {
        const int step = w < h.instruction ? h.step : h.step - 1;
        if (step >= 0) begin = std::max(begin, run_of(party.rank, w, step)->end);
      }
    }
    for (const StreamId& party : parties) {
      const Head h = *head(party);
      run_of(party.rank, h.instruction, h.step) = TimedInstruction{begin, begin + cost};
      at(party).end = begin + cost;
      ++at(party).done;
    }
    timeline_.end = std::max(timeline_.end, begin + cost);
    return true;
  }

  // The stream that would have to move before the head of stream `id` can run. `reason`: why, for the user.
  StreamId blocker(StreamId id, std::string& reason) {
    const Head h = *head(id);
    const Instruction& i = at(id.rank).program->at(h.instruction);
    if (const auto w = awaited(id.rank, h)) {
      const Instruction& other = at(id.rank).program->at(*w);
      reason = "waits for instruction " + std::to_string(*w) + ", " + to_string(other);
      return {id.rank, other.stream};
    }
    for (const StreamId& partner : partners(id, i)) {
      if (has_come(partner, i) && !awaited(partner.rank, *head(partner))) continue;
      const std::string what = is_send(i.kind) ? " to receive it" : is_receive(i.kind) ? " to send it" : " to take part in it";
      reason = "waits for rank " + std::to_string(partner.rank) + what + (head(partner) ? "" : ", which never does");
      return partner;
    }
    throw InternalError("simulate: an instruction that could run has not");
  }

  void explain_deadlock() {
    StreamId id{0, no_stream};
    for (int rank = 0; rank < set_.layout.ranks() && id.stream == no_stream; ++rank) {
      for (int stream = 0; stream < static_cast<int>(at(rank).streams.size()); ++stream) {
        if (id.stream == no_stream && head({rank, stream})) id = {rank, stream};
      }
    }
    std::vector<StreamId> seen;
    while (head(id) && std::find(seen.begin(), seen.end(), id) == seen.end()) {
      seen.push_back(id);
      std::string reason;
      const int instruction = head(id)->instruction, rank = id.rank;
      id = blocker(id, reason);
      timeline_.deadlock.push_back({rank, instruction, reason});
    }
    // The instructions that lead into a circle are not part of it.
    const auto start = std::find(seen.begin(), seen.end(), id);
    std::vector<BlockedInstruction>& chain = timeline_.deadlock;
    if (start != seen.end()) chain.erase(chain.begin(), chain.begin() + (start - seen.begin()));
  }

  const ProgramSet& set_;
  int steps_;
  const InstructionCost& cost_;
  std::vector<Rank> ranks_;
  ProgramTimeline timeline_;
};

}  // namespace

ProgramTimeline simulate(const ProgramSet& set, int steps, const InstructionCost& cost) {
  return Simulation(set, steps, cost).run();
}

}  // namespace plait::parallel
