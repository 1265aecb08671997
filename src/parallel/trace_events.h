// Traced steps as events of the Trace Event Format, which Perfetto and chrome://tracing read. Pure functions.
//
// A process per rank, a thread per stream; below them what the GPU ran on each, where that is known. Slices are instructions
// (category `compute` or `communication`), collectives within them, and waits (category `wait`): for other streams, and at
// the head of a receive for a sender that was late. Arrows go from each send to its receive. Times are microseconds of the
// steady clock, which all ranks of a host share; of a simulated step, of a clock of its own.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "parallel/device_activities.h"
#include "parallel/mesh.h"
#include "parallel/program.h"
#include "parallel/step_recorder.h"

namespace plait::parallel {

struct TracedStep {
  StepTrace trace;
  std::vector<DeviceActivity> activities;
};

// The events of one rank's program, as elements of a JSON array with commas between. `first_step`: number of the interpreter's
// step 0. At most `most_bytes`: what the GPU ran is left out first, `left_out` says how many of those.
struct TraceText {
  std::string events;
  std::size_t left_out = 0;
};
TraceText trace_events(const Program& program, const Layout& layout, int rank, const std::string& device,
                       const std::vector<TracedStep>& steps, std::int64_t first_step, std::size_t most_bytes);

// The file: what trace_events gave, of all ranks.
std::string trace_file(const std::vector<std::string>& ranks);

}  // namespace plait::parallel
