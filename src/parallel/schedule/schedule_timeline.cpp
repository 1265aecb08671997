#include "parallel/schedule/schedule_timeline.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "config/pass_replay.h"
#include "core/error.h"
#include "parallel/schedule/braids.h"

namespace plait::parallel {
namespace {

char letter(PassKind kind) { return kind == PassKind::forward ? 'F' : kind == PassKind::backward_weight ? 'W' : 'B'; }

// The name of a pass: "F0", or "F0a" and "F0b" for the first and second of several chunks.
std::string label(const Pass& pass, int chunks) {
  std::string text = letter(pass.kind) + std::to_string(pass.micro_batch);
  if (chunks > 1) text += chunk_letters(pass.chunk);
  return text;
}

double cost_of(PassKind kind, const PassCosts& costs) {
  switch (kind) {
    case PassKind::forward: return costs.forward;
    case PassKind::backward: return costs.backward_input + costs.backward_weight;
    case PassKind::backward_input: return costs.backward_input;
    case PassKind::backward_weight: return costs.backward_weight;
  }
  throw InternalError("PassKind: no such kind");
}

}  // namespace

double Timeline::bubble_fraction() const {
  double busy = 0;
  for (const auto& passes : ranks) {
    for (const TimedPass& p : passes) busy += p.end - p.begin;
  }
  const double all = static_cast<double>(ranks.size()) * end;
  return all > 0 ? 1 - busy / all : 0;
}

Timeline play(const Schedule& schedule, const PassDuration& duration, double send) {
  require(schedule.passes.size() == static_cast<std::size_t>(schedule.ranks()),
          "schedule " + schedule.name + ": one list per rank");
  PassEnds ends(schedule.stages.rank_of_stage(), schedule.micro_batches);
  Timeline timeline{std::vector<std::vector<TimedPass>>(schedule.passes.size()), 0};
  std::vector<std::vector<Turn>> turns_of;
  std::vector<ReplayedList> lists;
  for (const std::vector<Pass>& passes : schedule.passes) lists.push_back({turns_of.emplace_back(turns(passes)).size()});
  const auto at_stage = [&](std::size_t rank, const Pass& pass) { return stage_pass(schedule, static_cast<int>(rank), pass); };
  const auto can_run = [&](std::size_t rank, std::size_t turn) {
    return std::ranges::none_of(passes_of(schedule.passes[rank], turns_of[rank][turn]),
                                [&](const Pass& pass) { return ends.missing(at_stage(rank, pass)).has_value(); });
  };
  replay(lists, can_run, [&](std::size_t rank, std::size_t turn, const auto& release) {
    const std::span<const Pass> passes = passes_of(schedule.passes[rank], turns_of[rank][turn]);
    std::vector<TimedPass>& done = timeline.ranks[rank];
    double now = done.empty() ? 0 : done.back().end;
    for (const Pass& pass : passes) now = std::max(now, ends.ready(at_stage(rank, pass), send).value());
    for (const Pass& pass : passes) {
      done.push_back({pass, now, now + duration(static_cast<int>(rank), pass)});
      now = done.back().end;
    }
    for (const Pass& pass : passes) {
      const int other = ends.finish(at_stage(rank, pass), now);
      if (other >= 0) release(static_cast<std::size_t>(other));
    }
    timeline.end = std::max(timeline.end, now);
  });
  timeline.complete = ends.complete();
  return timeline;
}

Timeline simulate(const Schedule& schedule, const PassDuration& duration, double send) {
  Timeline timeline = play(schedule, duration, send);
  std::string stuck;
  for (std::size_t r = 0; r < schedule.passes.size(); ++r) {
    const std::size_t done = timeline.ranks[r].size();
    if (done < schedule.passes[r].size()) {
      stuck +=
          ", rank " + std::to_string(r) + " at " + label(schedule.passes[r][done], schedule.stages.chunks(static_cast<int>(r)));
    }
  }
  require(stuck.empty(), "schedule " + schedule.name + ": deadlock" + stuck);
  require(timeline.complete, "schedule " + schedule.name + ": some pass is missing");
  return timeline;
}

Timeline simulate(const Schedule& schedule, const PassCosts& costs) {
  return simulate(schedule, [&](int, const Pass& pass) { return cost_of(pass.kind, costs); }, costs.send);
}

int peak_in_flight(const Schedule& schedule, int rank) {
  int now = 0, peak = 0;
  for (const Pass& pass : schedule.passes[static_cast<std::size_t>(rank)]) {
    if (pass.kind == PassKind::forward) peak = std::max(peak, ++now);
    if (adds_to_weights(pass.kind)) --now;
  }
  return peak;
}

std::string draw(const Schedule& schedule, const PassCosts& costs) {
  const Timeline timeline = simulate(schedule, costs);
  const auto column = [](double time) {
    require(time == std::floor(time), "draw: costs must be whole numbers");
    return static_cast<std::size_t>(time);
  };
  int chunks = 1;  // chunks of the rank that has most
  for (int rank = 0; rank < schedule.ranks(); ++rank) chunks = std::max(chunks, schedule.stages.chunks(rank));
  const std::size_t width = label({PassKind::forward, chunks - 1, schedule.micro_batches - 1}, chunks).size();
  std::string text;
  for (const auto& passes : timeline.ranks) {
    std::vector<std::string> cells(column(timeline.end), std::string(width, '.'));
    for (const TimedPass& p : passes) {
      const std::size_t begin = column(p.begin), end = column(p.end);
      for (std::size_t at = begin; at < end; ++at) {
        cells[at] = at == begin ? label(p.pass, chunks) : std::string(width, '-');
        cells[at].resize(width, ' ');
      }
    }
    for (std::size_t at = 0; at < cells.size(); ++at) text += (at == 0 ? "" : " ") + cells[at];
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

}  // namespace plait::parallel
