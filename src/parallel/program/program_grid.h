// A picture of one optimizer step: what each pipeline rank computes when.
#pragma once

#include <string>

#include "parallel/program/program_set.h"

namespace plait::parallel {

struct GridOptions {
  bool colour = false;     // with ANSI escapes, for a terminal
  bool messages = false;   // under each rank, what it sends and when it has arrived
  bool exchanges = false;  // under each rank, how many exchanges each pass has
  int width = 0;           // of a line, in characters: longer steps continue below; 0: no limit
  // An instruction to mark with brackets; with index -1, only its rank.
  int marked_rank = -1, marked_instruction = -1;
};

// A line per pipeline rank (of the data and tensor coordinates of the marked rank, or 0), a cell per unit of time, in which a
// whole stage's forward takes one unit and each part of its backward one:
//   F0 forward of micro-batch 0, B0 its backward (both parts: two cells, "B0 --"; or the input part alone), W0 the weight part
//   alone; "&" before a pass that is computed by turns with the one before it; with several chunks "F0a" for the first, "F0b"
//   for the second; U the update; .. idle messages: >0 output of micro-batch 0 to the next stage, <0 gradient to the stage
//   before
//   exchanges: x5 five in this pass, all with other passes' work or weight parts to compute meanwhile; x5!2 two of them with
//   none
// Programs that deadlock are drawn up to the deadlock; passes that never ran follow after a bar.
std::string draw_programs(const ProgramSet& set, const GridOptions& options = {});

}  // namespace plait::parallel
