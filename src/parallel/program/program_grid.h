// A picture of one optimizer step: what each pipeline rank computes when.
#pragma once

#include <string>

#include "parallel/program/program_set.h"

namespace plait::parallel {

struct GridOptions {
  bool colour = false;     // with ANSI escapes, for a terminal
  bool messages = false;   // under each rank, what it sends and when it has arrived
  bool exchanges = false;  // under each rank, how many exchanges each pass has
  int width = 0;           // characters in a line; longer steps continue below; 0: no limit
  // An instruction to mark with brackets; with index -1, only its rank.
  int marked_rank = -1, marked_instruction = -1;
};

// Draws a line per pipeline rank (at the data and tensor coordinates of the marked rank, or 0) and a cell per unit of time. A
// whole stage's forward takes one unit, and each part of its backward one.
//
// Passes: F0 is the forward of micro-batch 0, B0 its backward (both parts: two cells, "B0 --"; or the input part alone), W0 the
// weight part alone. "&" stands before a pass that is computed by turns with the one before it. With several chunks there is
// "F0a" for the first and "F0b" for the second. U is the update, .. is idle.
//
// Messages: >0 is the output of micro-batch 0 to the next stage, <0 a gradient to the stage before.
//
// Exchanges: x5 is five in this pass, all with work of other passes or weight parts to compute meanwhile; x5!2 is two of five
// with none.
//
// Programs that deadlock are drawn up to the deadlock; passes that never ran follow after a bar.
//
std::string draw_programs(const ProgramSet& set, const GridOptions& options = {});

}  // namespace plait::parallel
