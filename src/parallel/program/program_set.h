// The programs of all ranks, as one thing to prove (parallel/proof/validator.h), to time and to draw.
#pragma once

#include <optional>
#include <vector>

#include "parallel/flat_layout.h"
#include "parallel/mesh.h"
#include "parallel/program/program.h"

namespace plait::parallel {

struct RankProgram {
  Program program;
  std::vector<Bucket> buckets;  // those of the rank's flat layout
};

struct ProgramSet {
  Layout layout;
  ModelEnds ends;
  std::vector<model::Segment> segments;  // all segments of the model
  int micro_batches = 1;                 // one in evaluation
  int zero = 0;
  Documents documents = Documents::joined;
  bool tied = false;     // the head uses the embedding's table
  bool training = true;  // false: evaluation, which is forward only
  std::vector<RankProgram> programs;
  std::vector<int> program_of;  // by rank: index into `programs`; ranks that run the same program share it

  const RankProgram& of(int rank) const {
    return programs[static_cast<std::size_t>(program_of[static_cast<std::size_t>(rank)])];
  }
  const Program& program(int rank) const { return of(rank).program; }
  std::vector<int> members(Group group, int rank) const { return layout.members(group, rank, ends); }
  int segment_count() const { return static_cast<int>(segments.size()); }
  const model::Segment& segment(int index) const { return segments[static_cast<std::size_t>(index)]; }
  model::SegmentKind kind(int index) const { return segment(index).kind; }
  int head() const { return segment_count() - 1; }
};

// The same programs on fewer ranks, for work that grows with their number. Along an axis on which all ranks run the same
// program, two ranks stay; along the pipeline all stay. Two ranks do all that more would, as they all do the same at the same
// time. Ranks that stay keep their coordinates.
ProgramSet condensed(const ProgramSet& set);

// All groups, with their streams, over which the programs run something, ascending.
std::vector<GroupStream> groups_of(const ProgramSet& set);

bool is_send(InstructionKind kind);
bool is_receive(InstructionKind kind);

// The (chunk, slot) of the receiver's buffer, for a receive and for the send that fills it.
std::pair<int, int> place_received(const Instruction& receive);
std::pair<int, int> place_filled(const Instruction& send);

}  // namespace plait::parallel
