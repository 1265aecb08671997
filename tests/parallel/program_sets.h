// Programs of all ranks of small models, without a Config.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "parallel/make_layout.h"
#include "parallel/program/pipeline_program.h"
#include "parallel/program/program_set.h"
#include "parallel/proof/validator.h"
#include "parallel/schedule/braids.h"
#include "parallel/schedule/pass_messages.h"

namespace plait::parallel {

struct SetSpec {
  ScheduleSpec schedule;
  int data = 1, tensor = 1, zero = 0;
  bool overlap = true, tied = true, sequence_parallel = true, recompute = false;
  std::int64_t bucket_bytes = 1 << 14;  // some segment's gradients, not all of two
  bool halves = false;                  // micro-batches are cut in halves, if tensor is more than 1
  bool braided = true;                  // passes are braided, if tensor is more than 1
  Documents documents = Documents::joined;
  bool fp8 = false;    // products of attention and MLP read quantized weights
  bool ahead = false;  // one forward begins ahead, on a rank with all stages
  bool even = false;   // `blocks` in each stage; else none with the embedding and twice as many in the next
  int blocks = 1;      // transformer blocks of a stage

  std::string name() const {
    return plait::to_string(schedule.kind) + ", pipeline " + std::to_string(schedule.ranks) + ", virtual stages " +
           std::to_string(schedule.virtual_stages) + ", " + std::to_string(schedule.micro_batches) + " micro-batches, data " +
           std::to_string(data) + ", tensor " + std::to_string(tensor) + ", zero " + std::to_string(zero) +
           (halves ? ", halves" : "") + (braided ? "" : ", not braided") + (overlap ? ", overlap" : ", no overlap") +
           (documents == Documents::separate ? ", documents" : "") + (fp8 ? ", fp8" : "") + (ahead ? ", ahead" : "") +
           (tied ? ", tied" : ", untied");
  }
};

inline std::vector<SegmentRange> small_stages(int stages, bool even, int blocks) {
  std::vector<double> counts(static_cast<std::size_t>(stages), blocks);
  if (stages > 1 && !even) counts[0] = 0, counts[1] = 2 * blocks;
  return given_stages(counts);
}

inline model::ModelShape small_shape(int segments, bool tied) {
  model::ModelShape shape;
  shape.layers = (segments - 2) / 2, shape.hidden = 16, shape.heads = 4, shape.kv_heads = 4, shape.head_dim = 4, shape.ffn = 32;
  shape.vocab = 100, shape.padded_vocab = 256, shape.max_sequence = 16;
  shape.tie_embeddings = tied;
  return shape;
}

inline std::string first_problem(const ProgramSet& set) {
  const std::vector<ProgramProblem> problems = validate(set);
  return problems.empty() ? "" : to_string(problems.front(), set);
}

// ConfigError if the schedule does not exist. Ranks of one pipeline coordinate share a program, unless `shared` is off.
inline ProgramSet make_set(const SetSpec& spec, bool training = true, bool shared = true) {
  Schedule schedule = make_schedule(spec.schedule);
  if (spec.ahead) begin_ahead(schedule);
  if (spec.tensor > 1) spec.halves ? halve(schedule) : spec.braided ? braid(schedule) : unbraid(schedule);
  time_messages(schedule);
  const std::vector<SegmentRange> stages = small_stages(schedule.stages.count(), spec.even, spec.blocks);
  const int segments = stages.back().end;
  const model::ModelShape shape = small_shape(segments, spec.tied);
  const model::SegmentSizes sizes{.shape = shape,
                                  .split = {0, spec.tensor, spec.sequence_parallel && spec.tensor > 1},
                                  .micro_batch = {4, 16, spec.documents},
                                  .recompute = spec.recompute ? model::Recompute::selective : model::Recompute::none,
                                  .fp8 = spec.fp8};
  ProgramSet set{.layout = make_layout(schedule.ranks(), spec.data, spec.tensor),
                 .ends = {schedule.stages.rank_of(0), schedule.stages.rank_of(schedule.stages.count() - 1)},
                 .segments = model::segments(sizes),
                 .micro_batches = training ? schedule.micro_batches : 1,
                 .zero = spec.zero,
                 .documents = spec.documents,
                 .tied = spec.tied,
                 .training = training,
                 .programs = {},
                 .program_of = {}};
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    std::vector<int> of_rank, chunk_starts;
    for (int stage = 0; stage < schedule.stages.count(); ++stage) {
      if (schedule.stages.rank_of(stage) != rank) continue;
      const SegmentRange range = stages[static_cast<std::size_t>(stage)];
      chunk_starts.push_back(range.first);
      for (int segment = range.first; segment < range.end; ++segment) of_rank.push_back(segment);
    }
    const bool tied_here = spec.tied && of_rank.front() == 0 && of_rank.back() == segments - 1;
    const FlatLayout flat(model::parameters(shape, sizes.split, of_rank), {.layout = {{Axis::data, spec.data}},
                                                                           .zero = spec.zero,
                                                                           .bucket_bytes = spec.bucket_bytes,
                                                                           .gradient_type = DType::f32,
                                                                           .tied_head = tied_here ? segments - 1 : -1,
                                                                           .chunk_starts = chunk_starts});
    const ProgramSpec program{.schedule = schedule,
                              .sizes = sizes,
                              .stages = stages,
                              .rank = rank,
                              .buckets = flat.buckets(),
                              .zero = spec.zero,
                              .overlap = spec.overlap,
                              .tied_here = tied_here};
    set.programs.push_back({training ? training_program(program) : evaluation_program(program), flat.buckets()});
  }
  for (int rank = 0; rank < set.layout.ranks(); ++rank) {
    set.program_of.push_back(set.layout.coordinate(rank, Axis::pipeline));
    if (shared || set.layout.moved(rank, Axis::pipeline, 0) == 0) continue;
    set.programs.push_back(set.of(rank));
    set.program_of.back() = static_cast<int>(set.programs.size()) - 1;
  }
  return set;
}

}  // namespace plait::parallel
