// Small jobs that together have every feature of programs: every schedule, groups of every kind, with and without overlap.
#pragma once

#include <vector>

#include "parallel/program_sets.h"

namespace plait::plan {

inline std::vector<parallel::SetSpec> small_jobs() {
  return {
      {.schedule = {ScheduleKind::one_f_one_b, 2, 1, 3}, .data = 2},
      {.schedule = {ScheduleKind::one_f_one_b, 4, 1, 4}, .tensor = 2, .tied = false},
      {.schedule = {ScheduleKind::gpipe, 3, 1, 3}, .data = 2, .zero = 1},
      {.schedule = {ScheduleKind::interleaved, 2, 2, 4}, .data = 2, .zero = 2},
      {.schedule = {ScheduleKind::zb_h1, 3, 1, 4}, .data = 2, .tensor = 2},
      {.schedule = {ScheduleKind::zb_v, 2, 2, 4}, .data = 2, .zero = 1},
      {.schedule = {ScheduleKind::one_f_one_b, 2, 1, 2}, .data = 2, .overlap = false},
      {.schedule = {ScheduleKind::one_f_one_b, 1, 1, 2}, .data = 4, .tensor = 2, .zero = 1},
  };
}

}  // namespace plait::plan
