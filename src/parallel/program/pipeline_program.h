// Makes a rank's program from a schedule: segments, messages, buffers and waits.
//
// Nothing here depends on the schedule. Slots are handed out in the order of the passes, messages are received one pass ahead
// (or earlier, Schedule::times), and waits follow from which instructions use the same buffer on different streams.
#pragma once

#include <vector>

#include "parallel/flat_layout.h"
#include "parallel/program/program.h"
#include "parallel/schedule/schedule.h"
#include "parallel/stages.h"

namespace plait::parallel {

struct ProgramSpec {
  Schedule schedule;
  model::SegmentSizes sizes;
  std::vector<SegmentRange> stages;
  int rank = 0;                 // pipeline rank
  std::vector<Bucket> buckets;  // those of the rank's flat layout
  int zero = 0;
  DType gradient_type = DType::f32;
  // false, for comparison: compute stands still while sums, gradients and messages are on their way.
  bool overlap = true;
  bool tied_here = false;  // the head uses the embedding's table and both are on this rank
};

// One optimizer step. A bucket's reduction starts on the reduce stream when the last micro-batch has written its last gradient
// (ZeRO-2: after every micro-batch) and runs beside the rest of backward; gathers of updated weights run beside the next step's
// forward.
Program training_program(const ProgramSpec& spec);

// Forward only, for evaluation: one micro-batch through all stages, in the first slot of every buffer.
Program evaluation_program(const ProgramSpec& spec);

}  // namespace plait::parallel
