// Checks that programs are well formed, and consist of the instructions that an optimizer step takes.
#include <algorithm>
#include <map>
#include <tuple>

#include "parallel/program/exchanges.h"
#include "parallel/proof/validator_checks.h"

namespace plait::parallel {
namespace {

constexpr int whole_program = -1;

bool is_quantized(const ProgramSet& set, const Bucket& bucket) {
  return std::ranges::any_of(bucket.segments, [&](int segment) { return set.segment(segment).quantized; });
}

// The properties that make two instructions the same piece of work.
auto identity(const Instruction& i) {
  const Collective& c = i.collective;
  return std::tuple(i.kind, i.part, i.micro_batch, i.chunk, i.segment, i.bucket,
                    i.recomputed && (i.kind == InstructionKind::norm || i.kind == InstructionKind::round_norm), c.operation,
                    c.group, c.purpose, c.source, c.destination, c.tensor);
}

// The instructions that the list of expected ones has. Collectives of a pass are not listed: they follow from what the pass's
// computations leave to be done (check_values()).
bool is_listed(const Instruction& i) {
  return !communicates_in_pass(i) && i.kind != InstructionKind::round_norm && i.kind != InstructionKind::round_gradient;
}

// Every listed instruction of the rank's step, with the fields that identity() reads.
std::vector<Instruction> expected_instructions(const ProgramSet& set, int rank) {
  using enum InstructionKind;
  const Program& program = set.program(rank);
  std::vector<Instruction> list;
  const auto for_each_micro_batch = [&](Instruction i) {
    for (i.micro_batch = 0; i.micro_batch < set.micro_batches; ++i.micro_batch) list.push_back(i);
  };
  bool needs_batch = false;
  for (int c = 0; c < static_cast<int>(program.chunks.size()); ++c) {
    const Chunk& chunk = program.chunks[static_cast<std::size_t>(c)];
    const bool after = chunk.next_rank >= 0, before = chunk.previous_rank >= 0;
    const auto compute = [&](InstructionKind kind, int segment) {
      for_each_micro_batch({.kind = kind, .chunk = c, .segment = segment});
    };
    const auto compute_parts = [&](InstructionKind kind, int segment) {
      for (int part = 0; part < parts_of(set.segment(segment), kind); ++part)
        for_each_micro_batch({.kind = kind, .part = part, .chunk = c, .segment = segment});
    };
    if (set.segment(chunk.last_segment()).partial && has_output(set.kind(chunk.last_segment())))
      compute(add_residual, chunk.end_segment);
    if (before) for_each_micro_batch({.kind = receive_activation, .chunk = c});
    if (after) for_each_micro_batch({.kind = send_activation, .chunk = c});
    if (set.training && after) for_each_micro_batch({.kind = receive_gradient, .chunk = c});
    if (set.training && before) for_each_micro_batch({.kind = send_gradient, .chunk = c});
    for (int segment = chunk.first_segment; segment < chunk.end_segment; ++segment) {
      const model::SegmentKind kind = set.kind(segment);
      needs_batch = needs_batch || reads_batch(kind, set.documents);
      compute_parts(forward, segment);
      if (set.training) compute(backward_weight, segment);
      if (!has_output(kind)) compute(loss, segment);
      if (!has_norm(kind)) continue;
      compute(norm, segment);
      if (!set.training) continue;
      if (set.segment(segment).recomputes_norm)
        for_each_micro_batch({.kind = norm, .chunk = c, .segment = segment, .recomputed = true});
      compute_parts(backward_input, segment);
      compute(norm_backward, segment);
    }
  }
  if (needs_batch) for_each_micro_batch({.kind = load_batch});
  if (!set.training) return list;
  const std::vector<Bucket>& buckets = set.of(rank).buckets;
  const auto between = [](Operation operation, Group group, Purpose purpose, BufferId source, BufferId destination,
                          int bucket = -1) {
    return Instruction{
        .kind = InstructionKind::collective, .bucket = bucket, .collective = {operation, group, purpose, source, destination}};
  };
  const auto over = [&](Operation operation, Group group, Purpose purpose, BufferKind buffer, int bucket = -1) {
    const BufferId in_place{buffer, std::max(bucket, 0), 0};
    return between(operation, group, purpose, in_place, in_place, bucket);
  };
  const auto is_tied = [](const Bucket& b) { return b.partial.contains(stage_axis); };
  if (std::any_of(buckets.begin(), buckets.end(), is_tied))
    list.push_back(over(Operation::barrier, groups::tied, Purpose::gradients, BufferKind::arrival));
  for (int b = 0; b < static_cast<int>(buckets.size()); ++b) {
    const Bucket& bucket = buckets[static_cast<std::size_t>(b)];
    const Instruction reduce =
        between(set.zero > 0 ? Operation::reduce_scatter : Operation::sum, groups::replicas, Purpose::gradients,
                {BufferKind::gradients, bucket.place, 0}, {BufferKind::gradient_sums, b, 0}, b);
    if (set.zero >= 2) {
      for_each_micro_batch(reduce);
    } else {
      list.push_back(reduce);
    }
    bucket.further().for_each([&](Axis axis) {
      list.push_back(over(Operation::sum, group_along(axis), Purpose::gradients, BufferKind::gradient_sums, b));
    });
    if (set.zero >= 1) list.push_back(over(Operation::all_gather, groups::replicas, Purpose::weights, BufferKind::weights, b));
    if (!bucket.products || !is_quantized(set, bucket)) continue;
    list.push_back({.kind = scale_weights, .bucket = b});
    if (set.layout.size(segment_axis) > 1)
      list.push_back(over(Operation::max, groups::tensor, Purpose::weights, BufferKind::weight_scales, b));
    list.push_back({.kind = quantize_weights, .bucket = b});
  }
  list.push_back({.kind = gradient_norm});
  list.push_back(over(Operation::sum, groups::world, Purpose::scalars, BufferKind::scalars));
  list.push_back({.kind = update});
  return list;
}

bool may_run(const StreamSpec& stream, const Instruction& i, const Program& program) {
  using enum InstructionKind;
  switch (i.kind) {
    // These are all on one stream: they share scratch memory.
    case forward:
    case loss:
    case backward_input:
    case backward_weight:
    case gradient_norm:
    case update: return stream.role == StreamRole::compute;
    // These lie between collectives of activations.
    case add_residual:
    case norm:
    case round_norm:
    case norm_backward:
    case round_gradient: return stream.role == StreamRole::compute || stream.role == StreamRole::exchange;
    case load_batch: return stream.role == StreamRole::compute || stream.role == StreamRole::copy;
    case collective: return stream.role == StreamRole::compute || stream.role == stream_role(i.collective.purpose);
    case scale_weights:
    case quantize_weights: return stream.role == StreamRole::compute || stream.role == StreamRole::reduce;
    case send_activation: return stream == StreamSpec{StreamRole::send, program.chunk_of(i).next_rank};
    case send_gradient: return stream == StreamSpec{StreamRole::send, program.chunk_of(i).previous_rank};
    case receive_activation: return stream == StreamSpec{StreamRole::receive, program.chunk_of(i).previous_rank};
    case receive_gradient: return stream == StreamSpec{StreamRole::receive, program.chunk_of(i).next_rank};
  }
  return false;
}

class RankStructure {
 public:
  RankStructure(const ProgramSet& set, int rank, ProblemList& problems)
      : set_(set), rank_(rank), program_(set.program(rank)), buckets_(set.of(rank).buckets), problems_(problems) {}

  void check() {
    check_streams();
    check_buckets();
    check_gathers();
    std::set<decltype(identity({}))> expected;
    for (const Instruction& i : expected_instructions(set_, rank_)) expected.insert(identity(i));
    for (int n = 0; n < static_cast<int>(program_.instructions.size()); ++n) {
      const Instruction& i = program_.at(n);
      if (is_listed(i) ? !expected.contains(identity(i)) : !is_of_a_pass(i)) {
        problems_.add(rank_, n, "does not belong to this rank's step");
      } else {
        check_instruction(n);
      }
    }
  }

 private:
  bool holds(int segment) const {
    return std::any_of(program_.chunks.begin(), program_.chunks.end(),
                       [&](const Chunk& c) { return segment >= c.first_segment && segment < c.end_segment; });
  }

  // True for an instruction of a micro-batch in one of the rank's chunks or at its end. A collective must name a tensor that is
  // there.
  bool is_of_a_pass(const Instruction& i) const {
    if (i.micro_batch < 0 || i.micro_batch >= set_.micro_batches || i.bucket != -1) return false;
    if (i.chunk < 0 || i.chunk >= std::ssize(program_.chunks)) return false;
    const Chunk& chunk = program_.chunk_of(i);
    const bool is_behind = i.segment == chunk.end_segment;
    if (i.segment < chunk.first_segment || i.segment > chunk.end_segment) return false;
    if (!is_collective(i)) return !is_behind;
    const Collective& c = i.collective;
    if (!c.tensor || c.purpose != Purpose::activations || c.group.model_ends || c.operation == Operation::barrier) return false;
    if (*c.tensor == model::PassTensor::product && i.segment == chunk.first_segment) return false;
    const bool of_received = *c.tensor == model::PassTensor::input_gradient && chunk.next_rank >= 0;
    if (is_behind && *c.tensor != model::PassTensor::product && !of_received) return false;
    return c.source == c.destination && c.source == pass_buffer(program_, i, *c.tensor);
  }

  // A gather into other ranks' memory must come behind a collective with them, which says that the memory is free.
  void check_gathers() {
    for (const Exchange& e : exchanges_of(program_)) {
      for (int n = e.first; n <= e.last; ++n) {
        if (program_.at(n).collective.into_free && n <= first_collective(program_, e))
          problems_.add(rank_, n, "gathers into memory that other ranks may still use");
      }
    }
  }

  void check_streams() {
    for (const StreamSpec& stream : program_.streams) {
      if (std::count(program_.streams.begin(), program_.streams.end(), stream) == 1) continue;
      problems_.add(rank_, whole_program, "declares the stream '" + to_string(stream) + "' twice");
    }
  }

  void check_buckets() {
    const auto problem = [&](std::string words) { problems_.add(rank_, whole_program, std::move(words)); };
    std::set<int> reduced;
    bool tied_sum = false, whole_table = false;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const auto has = [&](int segment) {
        return std::find(buckets_[b].segments.begin(), buckets_[b].segments.end(), segment) != buckets_[b].segments.end();
      };
      for (const int segment : buckets_[b].segments) {
        if (!holds(segment))
          problem("bucket " + std::to_string(b) + " has segment " + std::to_string(segment) + " of another rank");
        reduced.insert(segment);
      }
      tied_sum = tied_sum || (buckets_[b].partial.contains(stage_axis) && (has(0) || has(set_.head())));
      whole_table = whole_table || (has(0) && has(set_.head()));
    }
    if (!set_.training) return;
    for (const Chunk& c : program_.chunks) {
      for (int segment = c.first_segment; segment < c.end_segment; ++segment) {
        if (!reduced.contains(segment)) problem("no bucket has the gradients of segment " + std::to_string(segment));
      }
    }
    const bool first = holds(0), last = holds(set_.head());
    if (set_.tied && first != last && !tied_sum) {
      problem("no bucket sums the tied table's gradients over the first and the last stage");
    }
    if (set_.tied && first && last && !whole_table) {
      problem("no bucket has the tied table's gradients of both embedding and head");
    }
  }

  void check_instruction(int n) {
    const Instruction& i = program_.at(n);
    const int count = static_cast<int>(program_.instructions.size());
    const auto problem = [&](std::string words) { problems_.add(rank_, n, std::move(words)); };
    if (i.stream < 0 || i.stream >= static_cast<int>(program_.streams.size())) {
      return problem("is on stream " + std::to_string(i.stream) + " of " + std::to_string(program_.streams.size()));
    }
    const StreamSpec& stream = program_.stream_of(i);
    if (!may_run(stream, i, program_)) problem("cannot be on the stream '" + to_string(stream) + "'");
    for (const int w : i.waits) {
      if (w < 0 || w >= count || w == n) problem("waits for instruction " + std::to_string(w) + " of " + std::to_string(count));
    }
    check_fields(i, problem);
    for (const BufferUse& use : buffer_uses(program_, i, buckets_)) {
      const int slots = slots_of(program_, use.buffer);
      if (use.buffer.slot < 0 || use.buffer.slot >= slots) {
        problem("uses the " + to_string(use.buffer) + ", but the program declares " + std::to_string(slots) + " slots there");
      }
    }
  }

  // The memory of a recomputed norm has other uses after forward.
  template <typename Report>
  void check_norm(const Instruction& i, const Report& problem) {
    const bool received = i.segment == program_.chunk_of(i).end_segment;  // the gradient that the next stage sends
    const bool recomputed = !received && set_.segment(i.segment).recomputes_norm;
    if (i.recomputed == recomputed) return;
    problem(recomputed ? "uses the norm that forward has not kept" : "uses a recomputed norm, but forward keeps it");
  }

  template <typename Report>
  void check_fields(const Instruction& i, const Report& problem) {
    const bool forward = i.kind == InstructionKind::forward, weight = i.kind == InstructionKind::backward_weight;
    const bool begins = i.part == 0;
    if (i.segment < 0) return;
    const model::SegmentKind kind = i.segment < set_.segment_count() ? set_.kind(i.segment) : model::SegmentKind::head;
    const bool tokens = reads_tokens(kind) && (forward || weight);
    const bool targets = i.kind == InstructionKind::loss || (reads_targets(kind) && forward && set_.segment(i.segment).partial);
    const bool starts = kind == model::SegmentKind::attention && set_.documents == Documents::separate &&
                        (forward || i.kind == InstructionKind::backward_input) && begins;
    if ((tokens || targets || starts) && i.batch_slot < 0) problem("has no batch");
    const bool recomputes = i.recomputed && (i.kind == InstructionKind::norm || i.kind == InstructionKind::round_norm);
    const bool backward = !recomputes && is_in_backward(i);
    if (backward || recomputes) check_norm(i, problem);
    if (!backward) return;
    const Chunk& chunk = program_.chunk_of(i);
    const bool of_last = i.segment == chunk.last_segment() || i.segment == chunk.end_segment;
    if (of_last && chunk.next_rank >= 0 && i.gradient_in < 0) problem("has no gradient of its output");
    const bool of_first = i.segment == chunk.first_segment && i.kind == InstructionKind::norm_backward;
    if (of_first && i.gradient_out < 0) problem("has no place for the gradient of its input");
  }

  const ProgramSet& set_;
  int rank_;
  const Program& program_;
  const std::vector<Bucket>& buckets_;
  ProblemList& problems_;
};

// Checks, for one data and tensor coordinate, that the chunks of its pipeline ranks are stages 0, 1, .. of the whole model and
// name the ranks of their neighbours.
void check_stages(const ProgramSet& set, int first_rank, ProblemList& problems) {
  struct Stage {
    int pipeline = 0;
    const Chunk* chunk = nullptr;
  };
  std::map<int, Stage> stages;
  const auto problem = [&](int pipeline, const std::string& words) {
    problems.add(set.layout.moved(first_rank, stage_axis, pipeline), whole_program, words);
  };
  for (int pipeline = 0; pipeline < set.layout.size(stage_axis); ++pipeline) {
    for (const Chunk& c : set.program(set.layout.moved(first_rank, stage_axis, pipeline)).chunks) {
      if (!stages.try_emplace(c.stage, Stage{pipeline, &c}).second) {
        problem(pipeline, "has stage " + std::to_string(c.stage) + ", which another chunk is too");
      }
    }
  }
  int next = 0, segment = 0;
  for (const auto& [number, stage] : stages) {
    const std::string name = "stage " + std::to_string(number);
    if (number != next) problem(stage.pipeline, name + " is not preceded by a stage " + std::to_string(number - 1));
    if (stage.chunk->first_segment != segment || stage.chunk->end_segment <= segment) {
      problem(stage.pipeline, name + " has segments " + std::to_string(stage.chunk->first_segment) + " to " +
                                  std::to_string(stage.chunk->last_segment()) + " and should begin with segment " +
                                  std::to_string(segment));
    }
    next = number + 1;
    segment = stage.chunk->end_segment;
    const auto neighbour = [&](int of) {
      const auto it = stages.find(of);
      return it == stages.end() || it->second.pipeline == stage.pipeline ? -1 : it->second.pipeline;
    };
    if (stage.chunk->previous_rank != neighbour(number - 1) || stage.chunk->next_rank != neighbour(number + 1)) {
      problem(stage.pipeline, name + " names other ranks as its neighbours than have them");
    }
  }
  const ModelEnds ends =
      stages.empty() ? ModelEnds{} : ModelEnds{stages.begin()->second.pipeline, stages.rbegin()->second.pipeline};
  const int last = ends.last;
  if (segment != set.segment_count()) {
    problem(last, "the stages end with segment " + std::to_string(segment - 1) + ", the model with segment " +
                      std::to_string(set.head()));
  }
  if (ends.first != set.ends.first) {
    problem(ends.first, "has the first stage, but pipeline rank " + std::to_string(set.ends.first) + " should");
  }
  if (last != set.ends.last) {
    problem(last, "has the last stage, but pipeline rank " + std::to_string(set.ends.last) + " should");
  }
}

}  // namespace

void check_structure(const ProgramSet& set, ProblemList& problems) {
  for (int rank = 0; rank < set.layout.ranks(); ++rank) {
    if (set.layout.coordinate(rank, stage_axis) == 0) check_stages(set, rank, problems);
  }
  if (!problems.empty()) return;
  for (const int rank : ranks_of_programs(set)) RankStructure(set, rank, problems).check();
}

void check_complete(const ProgramSet& set, int rank, ProblemList& problems) {
  const Program& program = set.program(rank);
  std::map<decltype(identity({})), int> first;
  for (int n = 0; n < static_cast<int>(program.instructions.size()); ++n) {
    const auto [it, fresh] = first.try_emplace(identity(program.at(n)), n);
    if (!fresh) problems.add(rank, n, "runs a second time: instruction " + std::to_string(it->second) + " is the same");
  }
  for (const Instruction& i : expected_instructions(set, rank)) {
    if (!first.contains(identity(i))) problems.add(rank, whole_program, to_string(i) + " is missing");
  }
}

}  // namespace plait::parallel
