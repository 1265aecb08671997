#include "parallel/program_timeline.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace plait::parallel {
namespace {

constexpr int no_stream = -1;
constexpr std::size_t group_count = 4;  // of enum Group

// One stream of one rank.
struct Place {
  int rank = 0, stream = no_stream;
  friend bool operator==(const Place&, const Place&) = default;
};

class Simulation {
 public:
  Simulation(const ProgramSet& set, int steps, const InstructionCost& cost) : set_(set), steps_(steps), cost_(cost) {
    for (int rank = 0; rank < set.layout.ranks(); ++rank) {
      const Program& program = set.program(rank);
      Rank r{.program = &program, .streams = std::vector<Stream>(program.streams.size()), .group_streams = {}, .groups = {}};
      r.group_streams.fill(no_stream);
      for (int n = 0; n < static_cast<int>(program.instructions.size()); ++n) {
        const Instruction& i = program.at(n);
        r.streams[static_cast<std::size_t>(i.stream)].list.push_back(n);
        const auto group = collective_group(i);
        if (!group) continue;
        int& stream = r.group_streams[static_cast<std::size_t>(*group)];
        if (stream == no_stream) stream = i.stream;
      }
      for (std::size_t group = 0; group < group_count; ++group) r.groups[group] = set.members(static_cast<Group>(group), rank);
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
  struct Stream {
    std::vector<int> list;  // of its instructions in one step
    int done = 0;           // over all steps
    double end = 0;         // of the last one
  };
  struct Rank {
    const Program* program = nullptr;
    std::vector<Stream> streams;
    std::array<int, group_count> group_streams;  // where a group's collectives are
    std::array<std::vector<int>, group_count> groups;
  };
  struct Head {
    int instruction = 0, step = 0;
  };

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  Stream& at(Place place) { return at(place.rank).streams[static_cast<std::size_t>(place.stream)]; }

  std::optional<Head> head(Place place) {
    if (place.stream == no_stream) return std::nullopt;
    const Stream& s = at(place);
    const int length = static_cast<int>(s.list.size());
    if (s.done == length * steps_) return std::nullopt;
    return Head{s.list[static_cast<std::size_t>(s.done % length)], s.done / length};
  }

  std::optional<TimedInstruction>& run_of(int rank, int instruction, int step) {
    const std::size_t first = at(rank).program->instructions.size() * static_cast<std::size_t>(step);
    return timeline_.ranks[static_cast<std::size_t>(rank)][first + static_cast<std::size_t>(instruction)];
  }

  // What an instruction waits for and has not run.
  std::optional<int> awaited(int rank, Head h) {
    for (const int w : at(rank).program->at(h.instruction).waits) {
      const int step = w < h.instruction ? h.step : h.step - 1;
      if (step >= 0 && !run_of(rank, w, step)) return w;
    }
    return std::nullopt;
  }

  // The other streams that must have come to the same message or collective.
  std::vector<Place> partners(Place place, const Instruction& i) {
    std::vector<Place> places;
    if (is_send(i.kind) || is_receive(i.kind)) {
      const StreamSpec& mine = at(place.rank).program->stream_of(i);
      const int peer = set_.layout.on_pipeline(place.rank, mine.peer);
      const StreamSpec theirs{is_send(i.kind) ? StreamRole::receive : StreamRole::send,
                              set_.layout.coordinates(place.rank).pipeline};
      const auto& specs = at(peer).program->streams;
      const auto it = std::find(specs.begin(), specs.end(), theirs);
      places.push_back({peer, it == specs.end() ? no_stream : static_cast<int>(it - specs.begin())});
    } else if (const auto group = collective_group(i)) {
      for (const int member : at(place.rank).groups[static_cast<std::size_t>(*group)]) {
        if (member != place.rank) places.push_back({member, at(member).group_streams[static_cast<std::size_t>(*group)]});
      }
    }
    return places;
  }

  // True if the head of `partner` is the other end of `i`.
  bool has_come(Place partner, const Instruction& i) {
    const auto h = head(partner);
    return h && collective_group(at(partner.rank).program->at(h->instruction)) == collective_group(i);
  }

  bool advance(Place place) {
    const auto mine = head(place);
    if (!mine || awaited(place.rank, *mine)) return false;
    const Instruction& i = at(place.rank).program->at(mine->instruction);
    std::vector<Place> parties = partners(place, i);
    for (const Place& party : parties) {
      if (!has_come(party, i) || awaited(party.rank, *head(party))) return false;
    }
    parties.push_back(place);
    double begin = 0, cost = 0;
    for (const Place& party : parties) {
      const Head h = *head(party);
      begin = std::max(begin, at(party).end);
      cost = std::max(cost, cost_(party.rank, h.instruction));
      for (const int w : at(party.rank).program->at(h.instruction).waits) {
        const int step = w < h.instruction ? h.step : h.step - 1;
        if (step >= 0) begin = std::max(begin, run_of(party.rank, w, step)->end);
      }
    }
    for (const Place& party : parties) {
      const Head h = *head(party);
      run_of(party.rank, h.instruction, h.step) = TimedInstruction{begin, begin + cost};
      at(party).end = begin + cost;
      ++at(party).done;
    }
    timeline_.end = std::max(timeline_.end, begin + cost);
    return true;
  }

  // Why the head of `place` cannot run, and which stream would have to move first.
  Place blocker(Place place, std::string& reason) {
    const Head h = *head(place);
    const Instruction& i = at(place.rank).program->at(h.instruction);
    if (const auto w = awaited(place.rank, h)) {
      const Instruction& other = at(place.rank).program->at(*w);
      reason = "waits for instruction " + std::to_string(*w) + ", " + to_string(other);
      return {place.rank, other.stream};
    }
    for (const Place& partner : partners(place, i)) {
      if (has_come(partner, i) && !awaited(partner.rank, *head(partner))) continue;
      const std::string what = is_send(i.kind) ? " to receive it" : is_receive(i.kind) ? " to send it" : " to take part in it";
      reason = "waits for rank " + std::to_string(partner.rank) + what + (head(partner) ? "" : ", which never does");
      return partner;
    }
    throw InternalError("simulate: an instruction that could run has not");
  }

  void explain_deadlock() {
    Place place{0, no_stream};
    for (int rank = 0; rank < set_.layout.ranks() && place.stream == no_stream; ++rank) {
      for (int stream = 0; stream < static_cast<int>(at(rank).streams.size()); ++stream) {
        if (place.stream == no_stream && head({rank, stream})) place = {rank, stream};
      }
    }
    std::vector<Place> seen;
    while (head(place) && std::find(seen.begin(), seen.end(), place) == seen.end()) {
      seen.push_back(place);
      std::string reason;
      const int instruction = head(place)->instruction, rank = place.rank;
      place = blocker(place, reason);
      timeline_.deadlock.push_back({rank, instruction, reason});
    }
    // What leads into a circle is not part of it.
    const auto start = std::find(seen.begin(), seen.end(), place);
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
