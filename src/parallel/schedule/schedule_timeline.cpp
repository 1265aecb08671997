#include "parallel/schedule/schedule_timeline.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "core/error.h"
#include "parallel/schedule/braids.h"
#include "parallel/schedule/pass_ends.h"

namespace plait::parallel {
namespace {

char letter(PassKind kind) { return kind == PassKind::forward ? 'F' : kind == PassKind::backward_weight ? 'W' : 'B'; }

// "F0"; "F0a" and "F0b" for the first and second of several chunks.
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
  PassEnds ends(schedule);
  Timeline timeline{std::vector<std::vector<TimedPass>>(schedule.passes.size()), 0};
  // No pass depends on the order in which ranks are looked at, so each goes on until it has to wait for another.
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < schedule.passes.size(); ++r) {
      std::vector<TimedPass>& done = timeline.ranks[r];
      for (; done.size() < schedule.passes[r].size(); moved = true) {
        const int rank = static_cast<int>(r);
        const Turn turn = turn_at(schedule.passes[r], done.size());
        const std::span<const Pass> passes(schedule.passes[r].data() + turn.first, turn.count);
        double begin = done.empty() ? 0 : done.back().end;
        bool all_ready = true;
        for (const Pass& pass : passes) {
          const std::optional<double> ready = ends.ready(rank, pass, send);
          all_ready = all_ready && ready;
          begin = std::max(begin, ready.value_or(0));
        }
        if (!all_ready) break;
        for (const Pass& pass : passes) {
          done.push_back({pass, begin, begin + duration(rank, pass)});
          begin = done.back().end;
        }
        for (const Pass& pass : passes) ends.finish(rank, pass, begin);
        timeline.end = std::max(timeline.end, begin);
      }
    }
  }
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
    if (adds_to_weights(pass)) --now;
  }
  return peak;
}

std::string draw(const Schedule& schedule, const PassCosts& costs) {
  const Timeline timeline = simulate(schedule, costs);
  const auto column = [](double time) {
    require(time == std::floor(time), "draw: costs must be whole numbers");
    return static_cast<std::size_t>(time);
  };
  int chunks = 1;  // of the rank that has most
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
