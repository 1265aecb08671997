// Pipeline schedules: which pass every pipeline rank computes when, as plain data.
//
// The model is a chain of stages; a pipeline rank holds one stage, or several ("virtual stages", Narayanan et al. 2021), its
// chunks. A pass is the forward or backward of one micro-batch through one stage. A schedule lists each rank's passes in the
// order in which it computes them. Communication, buffers and everything else an optimizer step needs is added afterwards
// (parallel/pipeline_program.h), and is the same for all schedules.
//
// Within a chunk, passes of one kind run in ascending order of micro-batch, in every schedule: gradients are then summed in the
// same order and all schedules give the same bits.
#pragma once

#include <string>
#include <vector>

namespace plait::parallel {

enum class PassKind {
  forward,
  backward,         // both parts
  backward_input,   // gradient of the stage's input (B in Qi et al. 2023)
  backward_weight,  // gradients of its weights (W)
};

struct Pass {
  PassKind kind = PassKind::forward;
  int chunk = 0;  // of this rank
  int micro_batch = 0;
  friend bool operator==(const Pass&, const Pass&) = default;
};

// How stages are dealt to ranks.
enum class Placement {
  looped,   // stage s on rank s mod ranks, chunk s / ranks
  v_shape,  // two chunks per rank: stage s on rank s, stage 2 ranks - 1 - s on rank s again: first and last stage share rank 0
};

struct Schedule {
  std::string name;  // as in parallel.schedule
  int ranks = 1;     // pipeline ranks
  int chunks = 1;    // per rank
  int micro_batches = 1;
  Placement placement = Placement::looped;
  std::vector<std::vector<Pass>> passes;  // [rank], in order

  int stages() const { return ranks * chunks; }
  int stage(int rank, int chunk) const;
  int rank_of(int stage) const;
  int chunk_of(int stage) const;
};

struct ScheduleSpec {
  std::string name = "1f1b";  // see schedule_names()
  int ranks = 1;
  int virtual_stages = 1;  // chunks per rank, of `interleaved`; zb-v always has two and takes 1 or 2 here
  int micro_batches = 1;
};

// gpipe         Huang et al. 2019: all forwards, then all backwards
// 1f1b          Narayanan et al. 2021 (PipeDream-Flush): rank r runs at most ranks - r forwards ahead
// interleaved   Narayanan et al. 2021: 1F1B over virtual stages; micro_batches must be a multiple of ranks
// zb-h1         Qi et al. 2023: backward split in two; weight parts fill the bubble; in-flight activations as 1F1B's first rank
// zb-v          Qi et al. 2023, section 6: two chunks per rank placed as a V
std::vector<std::string> schedule_names();

// ConfigError naming parallel.schedule, parallel.virtual_stages or train.global_batch where the schedule does not exist for
// these sizes.
Schedule make_schedule(const ScheduleSpec& spec);

// What a pass costs, in any unit. A whole backward costs both parts. `send`: from the end of a pass to the moment at which
// another rank can use what it produced; nothing within a rank.
struct PassCosts {
  double forward = 1, backward_input = 1, backward_weight = 1;
  double send = 0;
};

struct TimedPass {
  Pass pass;
  double begin = 0, end = 0;
};

struct Timeline {
  std::vector<std::vector<TimedPass>> ranks;
  double end = 0;  // from the first pass to the end of the last, over all ranks
  // Share of ranks × end in which ranks stand idle. Includes what a rank waits before its first pass and after its last,
  // because an optimizer step that clips gradients by their norm begins and ends on all ranks together.
  double bubble_fraction() const;
};

// Every pass as early as its rank's order and its inputs allow. `costs` are per stage pass; a chunk costs 1 / chunks of it when
// costs are those of a whole rank's share (the caller divides). InternalError if the schedule cannot run (it deadlocks) or does
// not compute everything exactly once.
Timeline simulate(const Schedule& schedule, const PassCosts& costs = {});

// The largest number of micro-batches for which `rank` has done some forward and not yet the backward (weight part included),
// summed over its chunks.
int peak_in_flight(const Schedule& schedule, int rank);

// One line per rank, one column per unit of time: "F0 F1 .. B0 -- W0", ".." idle, "--" a pass going on, B a backward or its
// input part; with several chunks "F0a" for the first, "F0b" for the second. Needs whole-number costs.
std::string draw(const Schedule& schedule, const PassCosts& costs = {});

}  // namespace plait::parallel
