#include "plan/simulation/simulator.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/units.h"
#include "plan/simulation/engine.h"
#include "plan/simulation/find_critical_path.h"
#include "plan/simulation/job.h"
#include "plan/simulation/rank_classes.h"

namespace plait::plan {
namespace {

using namespace simulation;
using parallel::Ledger;

// The last step of one rank, for the ledger and the timeline.
class RankStep {
 public:
  RankStep(const Job& job, const Engine& engine, int rank_class)
      : rank_(engine.representative(rank_class)),
        job_(job),
        table_(job.table(rank_)),
        now_(engine.times(rank_class, 0)),
        before_(engine.times(rank_class, -1)) {}

  // The time when the stream reached instruction n in the last step.
  double reached(int n) const {
    const int place = table_.entries[at(n)].place;
    const std::vector<int>& stream = table_.streams[at(table_.program->at(n).stream)];
    return place > 0 ? now_[stream[at(place - 1)]].end : before_[stream.back()].end;
  }

  std::vector<InstructionTimes> timeline(double origin) const {
    std::vector<InstructionTimes> times;
    for (int n = 0; n < table_.instructions(); ++n) {
      const RunTimes& t = now_[n];
      times.push_back({reached(n) - origin, t.came - origin, t.begin - origin, t.moved - origin, t.end - origin});
    }
    return times;
  }

  Ledger ledger() const {
    const parallel::LedgerMaker maker(*table_.program, job_.layout, rank_);
    const double begin = before_[table_.last_compute].end;
    parallel::StepTimes times;
    times.end = to_ms * (now_[table_.last_compute].end - begin);
    for (const int n : maker.communication()) {
      times.communication.push_back(communication(n, now_[maker.first_of(n)].came, now_[n], begin));
      times.previous.push_back(communication(n, before_[maker.first_of(n)].came, before_[n], begin));
    }
    for (const int n : maker.waits()) times.waits.push_back({to_ms * (reached(n) - begin), to_ms * (now_[n].came - begin)});
    return maker.make(times);
  }

 private:
  // Times as a run measures them (runtime/step_recorder.h): from the time when the instruction's own stream reached it.
  // Receives also record when the sender was ready. `came`: of an exchange, that of its first instruction.
  parallel::CommunicationTimes communication(int n, double came, const RunTimes& t, double begin) const {
    parallel::CommunicationTimes times{to_ms * (came - begin), to_ms * (t.end - begin), std::nullopt};
    if (parallel::is_receive(table_.program->at(n).kind)) times.ready = to_ms * (t.begin - begin);
    return times;
  }

  int rank_;
  const Job& job_;
  const ProgramTable& table_;
  const RunTimes *now_, *before_;
};

std::vector<double> durations(const std::vector<double>& ends) {
  std::vector<double> durations = {ends.front()};
  for (std::size_t s = 1; s < ends.size(); ++s) durations.push_back(ends[s] - ends[s - 1]);
  return durations;
}

}  // namespace

Simulated simulate_step(const parallel::ProgramSet& set, const WorkOf& work_of, const topology::Network& network,
                        const std::vector<int>& gpu_of_rank, const SimulationOptions& options) {
  require(options.steps >= 2 && options.most_steps >= options.steps && options.most_steps <= Engine::most_steps,
          "simulate_step: at least 2 steps, at most 254");
  const Job job = make_job(set, work_of, network, gpu_of_rank, options.same_work);
  const Classes classes = options.merge_equal_ranks ? coarsest_classes(job) : single_classes(job);
  Simulated result;
  result.layout = set.layout;
  result.class_of = classes.of_rank;
  std::optional<Engine> engine;
  for (int steps = options.steps;; steps = std::min(2 * steps, options.most_steps)) {
    engine.emplace(job, classes, steps);
    engine->run();
    result.steps_seconds = durations(engine->step_ends());
    result.step_seconds = result.steps_seconds.back();
    const double before = result.steps_seconds[result.steps_seconds.size() - 2];
    result.settled = std::abs(result.step_seconds - before) <= options.settled_within * result.step_seconds;
    if (result.settled || steps == options.most_steps) break;
  }
  const double origin = engine->step_ends()[engine->step_ends().size() - 2];
  for (int c = 0; c < classes.ranks; ++c) {
    const RankStep step(job, *engine, c);
    result.representative.push_back(engine->representative(c));
    result.ledgers.push_back(step.ledger());
    if (options.keep_timeline) result.timeline.push_back(step.timeline(origin));
  }
  if (options.critical_path) {
    CriticalPath path = find_critical_path(job, classes, *engine);
    result.critical_path = std::move(path.runs);
    result.critical_sums = path.sums;
  }
  return result;
}

Ledger Simulated::ledger(int rank) const {
  Ledger ledger = ledgers.at(static_cast<std::size_t>(class_of.at(static_cast<std::size_t>(rank))));
  for (parallel::PeerTimes& peer : ledger.peers) {
    if (peer.rank >= 0) peer.rank = layout.moved(rank, stage_axis, layout.coordinate(peer.rank, stage_axis));
  }
  return ledger;
}

double Simulated::bubble_fraction(int rank) const {
  const Ledger& ledger = ledgers.at(static_cast<std::size_t>(class_of.at(static_cast<std::size_t>(rank))));
  return ledger.step_ms > 0 ? ledger.bubble_ms / ledger.step_ms : 0;
}

double Simulated::mean_bubble_fraction() const {
  double sum = 0;
  for (int rank = 0; rank < layout.ranks(); ++rank) sum += bubble_fraction(rank);
  return sum / layout.ranks();
}

Ledger Simulated::mean_ledger() const {
  std::vector<Ledger> without_peers = ledgers;
  for (Ledger& ledger : without_peers) ledger.peers.clear();
  parallel::LedgerSum sum;
  for (const int c : class_of) sum.add(without_peers[static_cast<std::size_t>(c)]);
  return sum.mean();
}

const std::vector<InstructionTimes>& Simulated::timeline_of(int rank) const {
  require(!timeline.empty(), "Simulated::timeline_of: SimulationOptions::keep_timeline was off");
  return timeline.at(static_cast<std::size_t>(class_of.at(static_cast<std::size_t>(rank))));
}

}  // namespace plait::plan
