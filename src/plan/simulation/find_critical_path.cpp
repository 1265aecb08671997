#include "plan/simulation/find_critical_path.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "parallel/ledger.h"

namespace plait::plan {

std::string to_string(const CriticalRun& run, const parallel::ProgramSet& set) {
  std::string text = fmt::format("{:.3f} to {:.3f} ms, rank {}: {}", 1e3 * run.begin, 1e3 * run.end, run.rank,
                                 to_string(set.program(run.rank).at(run.instruction)));
  if (run.cause == StartCause::step_began) return text + ", when the step began";
  if (run.last_rank != run.rank) text += fmt::format(", which rank {} reached last", run.last_rank);
  return text + fmt::format(", when {} was over", to_string(set.program(run.last_rank).at(run.cause_of)));
}

namespace simulation {
namespace {

// One run of an instruction on a rank.
struct InstructionRun {
  int rank = 0, instruction = 0, step = 0;
};

class PathTracer {
 public:
  PathTracer(const Job& job, const Classes& classes, const Engine& engine) : job_(job), classes_(classes), engine_(engine) {
    const std::vector<double>& ends = engine.step_ends();
    origin_ = ends[ends.size() - 2];
    end_ = ends.back();
  }

  CriticalPath take() {
    std::optional<InstructionRun> run = last();
    while (run) run = step_back(*run);
    std::reverse(path_.runs.begin(), path_.runs.end());
    return std::move(path_);
  }

 private:
  const RunTimes& times(const InstructionRun& run) const {
    return engine_.times(classes_.of_rank[at(run.rank)], run.step)[run.instruction];
  }
  const ProgramTable::Role& entry(const InstructionRun& run) const { return job_.table(run.rank).entries[at(run.instruction)]; }

  InstructionRun last() const {
    for (int rank = 0; rank < job_.ranks(); ++rank) {
      const InstructionRun run{rank, job_.table(rank).last_compute, 0};
      if (times(run).end == end_) return run;
    }
    throw InternalError("simulation: no rank ended the step");
  }

  int meet_of(const InstructionRun& run) const {
    return entry(run).meeting == Meeting::collective ? job_.meet_of[at(run.rank)][entry(run).group] : none;
  }

  // `run` itself, then the same message or collective on the other ranks that take part.
  std::vector<InstructionRun> parties(const InstructionRun& run) const {
    const ProgramTable::Role& mine = entry(run);
    const int stream = job_.table(run.rank).program->at(run.instruction).stream;
    if (mine.meeting == Meeting::send || mine.meeting == Meeting::receive) {
      const int peer = job_.peer_rank(run.rank, stream);
      return {run, {peer, job_.table(peer).streams[at(job_.peer_stream(run.rank, stream))][at(mine.place)], run.step}};
    }
    const int meet = meet_of(run);
    if (meet == none) return {run};
    std::vector<InstructionRun> all = {run};
    for (const int rank : job_.meets[at(meet)].ranks) {
      if (rank != run.rank) all.push_back({rank, job_.table(rank).collectives[mine.group][at(mine.turn)], run.step});
    }
    return all;
  }

  // The run whose end let `run` reach the head of its stream, with the kind of cause.
  std::optional<InstructionRun> cause_of(const InstructionRun& run, StartCause& cause) const {
    const ProgramTable& table = job_.table(run.rank);
    const parallel::Instruction& i = table.program->at(run.instruction);
    const std::vector<int>& stream = table.streams[at(i.stream)];
    const int place = entry(run).place;
    const double came = times(run).came;
    const auto ended_then = [&](const InstructionRun& other) { return other.step >= -1 && times(other).end == came; };
    const InstructionRun before{run.rank, place > 0 ? stream[at(place - 1)] : stream.back(),
                                place > 0 ? run.step : run.step - 1};
    cause = StartCause::stream;
    if (ended_then(before)) return before;
    cause = StartCause::awaited;
    for (const int awaited : i.waits) {
      const InstructionRun other{run.rank, awaited, awaited < run.instruction ? run.step : run.step - 1};
      if (ended_then(other)) return other;
    }
    cause = StartCause::step_began;
    return std::nullopt;
  }

  std::optional<InstructionRun> step_back(const InstructionRun& run) {
    const RunTimes& t = times(run);
    const std::vector<InstructionRun> all = parties(run);
    const auto came_last = [&](const InstructionRun& party) { return times(party).came == t.begin; };
    const auto party = std::find_if(all.begin(), all.end(), came_last);
    require(party != all.end(), "simulation: an instruction began before any party arrived");
    CriticalRun critical{.rank = run.rank, .instruction = run.instruction, .step = run.step};
    critical.last_rank = party->rank;
    std::optional<InstructionRun> cause = cause_of(*party, critical.cause);
    if (t.begin <= origin_) cause.reset(), critical.cause = StartCause::step_began;
    if (cause) critical.cause_of = cause->instruction;
    critical.begin = std::max(0.0, t.begin - origin_);
    critical.end = t.end - origin_;
    add(run, all, t);
    if (critical.end > critical.begin) path_.runs.push_back(critical);
    return cause;
  }

  Work work_of(const InstructionRun& run, const std::vector<InstructionRun>& all) const {
    if (entry(run).meeting == Meeting::receive) return job_.work(all[1].rank, all[1].instruction);
    Work work = job_.work(run.rank, run.instruction);
    if (entry(run).meeting != Meeting::collective) return work;
    if (all.size() == 1) work.bytes = 0;
    for (const InstructionRun& other : all) take_slower(work, job_.work(other.rank, other.instruction));
    return work;
  }

  const Flow* flow_of(const InstructionRun& run, const std::vector<InstructionRun>& all) const {
    const InstructionRun& from = entry(run).meeting == Meeting::receive ? all[1] : run;
    const int meet = meet_of(run);
    const int flow = meet != none
                         ? job_.meets[at(meet)].flow
                         : job_.message_flow[at(from.rank)][at(job_.table(from.rank).program->at(from.instruction).stream)];
    return flow == none ? nullptr : &job_.flows[at(flow)];
  }

  double seconds_alone(const Flow& flow, Work work) const {
    share_among_rings(work, flow.rings);
    double gb_per_s = flow.most_gb_per_s;
    if (work.most_gb_per_s > 0) gb_per_s = std::min(gb_per_s, work.most_gb_per_s);
    for (const Flow::Crossing& c : flow.crossings)
      gb_per_s = std::min(gb_per_s, job_.channel_gb_per_s[at(c.channel)] / c.times);
    return work.bytes * (1e-9 / gb_per_s);
  }

  // Splits the part of [from, to] that lies in this step: `alone` seconds of the whole go to `first`, the others to `rest`, in
  // proportion.
  void split(double from, double to, double alone, double& first, double& rest) const {
    const double length = to - from, inside = to - std::max(from, origin_);
    if (length <= 0 || inside <= 0) return;
    const double share = std::min(1.0, alone / length);
    first += inside * share;
    rest += inside * (1 - share);
  }

  void add(const InstructionRun& run, const std::vector<InstructionRun>& all, const RunTimes& t) {
    CriticalSums& sums = path_.sums;
    const Work work = work_of(run, all);
    double nothing = 0;
    const bool communicates = all.size() > 1 && !entry(run).compute;
    if (entry(run).compute) {
      split(t.begin, t.moved, work.seconds, sums.compute, sums.slowdown);
    } else if (communicates || parallel::communication_kind(job_.table(run.rank).program->at(run.instruction))) {
      split(t.begin, t.moved, t.moved - t.begin, sums.latency, nothing);
    } else {
      split(t.begin, t.moved, t.moved - t.begin, sums.copy, nothing);
    }
    if (all.size() == 1) return;
    const Flow* flow = flow_of(run, all);
    if (!flow) return;
    double& kind = entry(run).meeting == Meeting::collective ? sums.collective : sums.message;
    split(t.moved, t.end, seconds_alone(*flow, work), kind, sums.sharing);
  }

  const Job& job_;
  const Classes& classes_;
  const Engine& engine_;
  double origin_ = 0, end_ = 0;
  CriticalPath path_;
};

}  // namespace

CriticalPath find_critical_path(const Job& job, const Classes& classes, const Engine& engine) {
  return PathTracer(job, classes, engine).take();
}

}  // namespace simulation
}  // namespace plait::plan
