// The pipeline schedules, one row of facts each: everything about a schedule that can be known without its passes.
// Configuration rules, the planner's candidates and estimates, verify and the documentation read it.
//
// A named schedule is a value and a row here, and a generator of its passes in parallel/schedule/schedule.cpp. The planned one
// is listed by the times of passes (parallel/schedule/planned_schedule.h).
#pragma once

#include <cstdint>
#include <span>

#include "core/names.h"

namespace plait {

// parallel.schedule
enum class ScheduleKind { gpipe, one_f_one_b, interleaved, zb_h1, zb_v, planned, file };

// The assignment of stages to pipeline ranks.
enum class StagePlacement {
  loop,   // stage s on rank s mod ranks
  v,      // stage s on rank s, stage 2 ranks - 1 - s on rank s again: first and last stage share rank 0
  given,  // from the file, or as planned
};

// The inputs of a schedule's figures. Costs, in any unit, are those of one micro-batch in all stages of a rank.
struct ScheduleLoad {
  double ranks = 1, chunks = 1, micro_batches = 1;  // chunks: stages per rank
  double forward = 1, backward_input = 1, backward_weight = 1;
  constexpr double whole() const { return forward + backward_input + backward_weight; }
};
using ScheduleFigure = double (*)(const ScheduleLoad&);

struct ScheduleRow {
  ScheduleKind kind;
  std::string_view name;
  int chunks;  // stages per pipeline rank; any_number: parallel.virtual_stages
  StagePlacement placement;
  bool splits_backward;  // weight parts are separate passes
  bool in_rounds;        // micro-batches come in groups of as many as there are ranks: a multiple of parallel.pipeline
  bool is_candidate;     // the planner tries it if parallel.schedule is auto
  // Estimates; null: taken from the passes themselves. Idle time of a rank (Narayanan et al. 2021; Qi et al. 2023), and the
  // number of micro-batches whose activations a rank keeps for all its stages, if the step has that many.
  ScheduleFigure bubble, in_flight;

  static constexpr int any_number = 0;
  constexpr bool takes_any_chunks() const { return chunks == any_number; }
  constexpr std::int64_t chunks_with(std::int64_t virtual_stages) const { return takes_any_chunks() ? virtual_stages : chunks; }
};

namespace schedule_figures {
inline constexpr double fill_and_drain(const ScheduleLoad& l) { return (l.ranks - 1) * l.whole(); }
inline constexpr double as_many_as_ranks(const ScheduleLoad& l) { return l.ranks; }
inline constexpr double positive(double value) { return value > 0 ? value : 0; }
}  // namespace schedule_figures

// The built-in ones come first.
inline constexpr auto all_schedules = std::to_array<ScheduleRow>({
    // 1F1B with more memory: for comparison, not a candidate.
    {ScheduleKind::gpipe, "gpipe", 1, StagePlacement::loop, false, false, false, schedule_figures::fill_and_drain,
     [](const ScheduleLoad& l) { return l.micro_batches; }},
    {ScheduleKind::one_f_one_b, "1f1b", 1, StagePlacement::loop, false, false, true, schedule_figures::fill_and_drain,
     schedule_figures::as_many_as_ranks},
    {ScheduleKind::interleaved, "interleaved", ScheduleRow::any_number, StagePlacement::loop, false, true, true,
     [](const ScheduleLoad& l) { return schedule_figures::fill_and_drain(l) / l.chunks; },
     [](const ScheduleLoad& l) { return l.ranks * (1 + (l.ranks - 1) / (l.ranks * l.chunks)); }},
    {ScheduleKind::zb_h1, "zb-h1", 1, StagePlacement::loop, true, false, true,
     [](const ScheduleLoad& l) {
       return (l.ranks - 1) * schedule_figures::positive(l.forward + l.backward_input - l.backward_weight);
     },
     schedule_figures::as_many_as_ranks},
    {ScheduleKind::zb_v, "zb-v", 2, StagePlacement::v, true, false, true,
     [](const ScheduleLoad& l) {
       return (l.ranks - 1) * schedule_figures::positive(l.forward + l.backward_input - 2 * l.backward_weight) / 2;
     },
     schedule_figures::as_many_as_ranks},
    // Takes no longer than zb-h1, zb-v with two stages, and interleaved with more, and fits its use of memory to what is
    // available.
    {ScheduleKind::planned, "planned", ScheduleRow::any_number, StagePlacement::given, true, false, true,
     [](const ScheduleLoad& l) {
       return (l.ranks - 1) * schedule_figures::positive(l.forward + l.backward_input - l.chunks * l.backward_weight) /
              l.chunks;
     },
     schedule_figures::as_many_as_ranks},
    // parallel.schedule: {file: PATH} (config/schedule_file.h). Facts that differ between files come from the file.
    {ScheduleKind::file, "file", 1, StagePlacement::given, false, false, false, nullptr, nullptr},
});

inline constexpr std::span<const ScheduleRow> built_in_schedules{all_schedules.data(), all_schedules.size() - 1};

constexpr const ScheduleRow& schedule_row(ScheduleKind kind) { return all_schedules[static_cast<std::size_t>(kind)]; }

static_assert(
    [] {
      for (std::size_t n = 0; n < all_schedules.size(); ++n) {
        if (static_cast<std::size_t>(all_schedules[n].kind) != n) return false;
      }
      return true;
    }(),
    "all_schedules has a row for every ScheduleKind, in its order");

template <>
inline constexpr auto names<ScheduleKind> = [] {
  std::array<Name<ScheduleKind>, all_schedules.size()> list{};
  for (std::size_t n = 0; n < list.size(); ++n) list[n] = {all_schedules[n].kind, all_schedules[n].name};
  return list;
}();

}  // namespace plait
