// Traced steps as events of the Trace Event Format, which Perfetto and chrome://tracing read. Pure functions.
//
// One process per rank, one thread per stream, and below them what the GPU ran on each, where known. Slices are instructions
// (category `compute` or `communication`) and waits (category `wait`): for other streams, and at the head of a receive for a
// sender that was late. Arrows go from each send to its receive. Times are microseconds of the steady clock, which all ranks of
// a host share; a simulated step has its own clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "parallel/program/program.h"

namespace plait::parallel {

// The times of a traced step's instructions, in milliseconds since an origin on the host's steady clock.
struct StepTrace {
  struct Slice {
    int instruction = 0;                     // index into the program
    double waiting = 0, begin = 0, end = 0;  // reached on its stream, waits over, done
    std::optional<double> ready;             // a receive: its message could travel; a simulated collective: all ranks had come
  };
  std::chrono::steady_clock::time_point origin;
  std::int64_t step = 0;      // its number, as StepRecorder::begin counts
  double begin = 0, end = 0;  // on the compute stream
  std::vector<Slice> slices;  // by instruction
};

// A kernel or copy that a GPU ran.
struct DeviceActivity {
  std::string name;  // the kernel's; or "copy", "copy to a peer", "set", with the number of bytes
  int stream = -1;   // index into Program::streams; -1: another stream
  std::chrono::steady_clock::time_point begin, end;
};

struct TracedStep {
  StepTrace trace;
  std::vector<DeviceActivity> activities;
};

// The events of one rank's program, as elements of a JSON array with commas between. `first_step`: number of the interpreter's
// step 0. At most `most_bytes`: GPU activities are left out first, and `left_out` says how many.
struct TraceText {
  std::string events;
  std::size_t left_out = 0;
};
TraceText trace_events(const Program& program, const Layout& layout, int rank, const std::string& device,
                       const std::vector<TracedStep>& steps, std::int64_t first_step, std::size_t most_bytes);

// The text of the trace file. `ranks`: what trace_events gave, of all ranks.
std::string trace_file(const std::vector<std::string>& ranks);

}  // namespace plait::parallel
