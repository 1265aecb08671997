// Pipeline schedules: the order in which every pipeline rank computes its passes, as plain data.
//
// The model is a chain of stages; a pipeline rank holds one stage, or several ("virtual stages", Narayanan et al. 2021), its
// chunks. A pass is the forward or backward of one micro-batch through one stage. A schedule lists each rank's passes in the
// order in which it computes them. Communication, buffers and everything else an optimizer step needs is added afterwards
// (parallel/program/pipeline_program.h), and is the same for all schedules.
//
// All schedules but those of files go through a chunk's micro-batches in ascending order, forward and backward: gradients are
// then summed in the same order and all of them give the same bits. A file may have any order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/schedule_file.h"
#include "config/schedule_table.h"

namespace plait::parallel {

struct Pass {
  PassKind kind = PassKind::forward;
  int chunk = 0;  // of this rank
  int micro_batch = 0;
  bool braided = false;  // computed together with the pass before it (parallel/schedule/braids.h)
  friend bool operator==(const Pass&, const Pass&) = default;
};

// The pipeline rank of each stage. A rank's stages in ascending order are its chunks 0, 1, ...
class StageMap {
 public:
  StageMap() = default;
  // `rank_of_stage`: by stage. Every rank from 0 to the largest must have at least one stage (InternalError).
  explicit StageMap(std::vector<int> rank_of_stage);
  // The placement of built-in schedules (config/schedule_table.h), with `chunks` stages on each rank.
  StageMap(StagePlacement placement, int ranks, int chunks);

  int ranks() const { return static_cast<int>(stages_.size()); }
  int count() const { return static_cast<int>(ranks_.size()); }  // of stages
  int chunks(int rank) const { return static_cast<int>(stages_[static_cast<std::size_t>(rank)].size()); }
  int stage(int rank, int chunk) const { return stages_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(chunk)]; }
  const std::vector<int>& rank_of_stage() const { return ranks_; }
  int rank_of(int stage) const { return ranks_[static_cast<std::size_t>(stage)]; }
  int chunk_of(int stage) const { return chunks_[static_cast<std::size_t>(stage)]; }
  friend auto operator<=>(const StageMap&, const StageMap&) = default;

 private:
  std::vector<int> ranks_, chunks_;       // by stage
  std::vector<std::vector<int>> stages_;  // by rank and chunk
};

struct TimeSpan {
  double begin = 0, end = 0;
};

struct Schedule {
  std::string name;  // as in parallel.schedule; a file's path
  int micro_batches = 1;
  StageMap stages;
  std::vector<std::vector<Pass>> passes;  // [rank], in order
  bool halves = false;  // micro-batches 2m and 2m + 1 are halves of the job's m-th (parallel/schedule/braids.h)
  // The time of each pass, or of its turn, if only the results of other passes hold it up: [rank][n]. Filled if messages have
  // to be received as they are sent, so that ranks do not wait in a circle for buffers: see time_messages() in
  // parallel/schedule/pass_messages.h. Else empty.
  std::vector<std::vector<TimeSpan>> times = {};

  int ranks() const { return stages.ranks(); }
};

struct ScheduleSpec {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  int ranks = 1;
  int virtual_stages = 1;  // chunks per rank if the schedule takes any number; else 1 or the schedule's own number
  int micro_batches = 1;
  std::shared_ptr<const ScheduleFile> file = nullptr;  // for kind file, and for kind planned if it is planned already
};

// gpipe         Huang et al. 2019: all forwards, then all backwards
// 1f1b          Narayanan et al. 2021 (PipeDream-Flush): rank r runs at most ranks - r forwards ahead
// interleaved   Narayanan et al. 2021: 1F1B over virtual stages; micro_batches must be a multiple of ranks
// zb-h1         Qi et al. 2023: backward split in two; weight parts fill the bubble; in-flight activations as 1F1B's first rank
// zb-v          Qi et al. 2023, section 6: two chunks per rank placed as a V
// planned       parallel/schedule/planned_schedule.h, for stages that are alike
// file          as it says
//
// ConfigError naming parallel.schedule, parallel.virtual_stages or train.global_batch where the schedule does not exist for
// these sizes.
Schedule make_schedule(const ScheduleSpec& spec);

// The name of a rank's chunk in pictures: "a", "b", ... "z", "aa", ...
std::string chunk_letters(int chunk);

// A pass of `rank`, by its stage. InternalError unless the schedule has that stage and micro-batch.
StagePass stage_pass(const Schedule& schedule, int rank, const Pass& pass);

// The passes by stage, as config/schedule_file.h writes them. Micro-batches must be whole.
std::vector<std::vector<StagePass>> stage_passes(const Schedule& schedule);

// The passes of a planned schedule, for parallel::Decision. Reading it proves it (config/schedule_file.h): ConfigError naming
// `source` if it cannot run.
std::shared_ptr<const ScheduleFile> planned_passes(std::string csv, const std::string& source);
std::shared_ptr<const ScheduleFile> planned_passes(const Schedule& schedule);

}  // namespace plait::parallel
