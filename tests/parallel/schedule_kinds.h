// The built-in schedules, for tests that go through all of them.
#pragma once

#include <vector>

#include "config/schedule_table.h"

namespace plait::parallel {

inline std::vector<ScheduleKind> built_in_kinds() {
  std::vector<ScheduleKind> kinds;
  for (const ScheduleRow& row : built_in_schedules) kinds.push_back(row.kind);
  return kinds;
}

// A value of parallel.virtual_stages to try a schedule with.
inline int some_virtual_stages(ScheduleKind kind) { return schedule_row(kind).takes_any_chunks() ? 2 : 1; }

// Stages per rank.
inline int chunks_of(ScheduleKind kind, int virtual_stages) {
  return static_cast<int>(schedule_row(kind).chunks_with(virtual_stages));
}

}  // namespace plait::parallel
