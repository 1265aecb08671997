// That programs are well formed, and made of the instructions that an optimizer step takes.
#include <algorithm>
#include <map>
#include <tuple>

#include "parallel/validator_checks.h"

namespace plait::parallel {
namespace {

constexpr int whole_program = -1;

// What makes two instructions the same piece of work.
auto identity(const Instruction& i) {
  const Group group = collective_group(i).value_or(groups::world);
  return std::tuple(i.kind, i.part, group, i.micro_batch, i.chunk, i.segment, i.bucket, i.exchange.sum, i.exchange.norm,
                    i.exchange.gather);
}

// Every instruction of the rank's step, as far as identity() looks.
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
    const auto exchange = [&](InstructionKind kind, int segment, const Exchange& parts) {
      for_each_micro_batch({.kind = kind, .chunk = c, .segment = segment, .group = groups::tensor, .exchange = parts});
    };
    if (set.several() && has_output(set.kind(chunk.last_segment())))
      exchange(exchange_forward, chunk.end_segment, {.sum = true});
    if (set.training && set.sequence_parallel && after) exchange(exchange_backward, chunk.end_segment, {.gather = true});
    if (before) for_each_micro_batch({.kind = receive_activation, .chunk = c});
    if (after) for_each_micro_batch({.kind = send_activation, .chunk = c});
    if (set.training && after) for_each_micro_batch({.kind = receive_gradient, .chunk = c});
    if (set.training && before) for_each_micro_batch({.kind = send_gradient, .chunk = c});
    for (int segment = chunk.first_segment; segment < chunk.end_segment; ++segment) {
      const model::SegmentKind kind = set.kind(segment);
      const bool first = segment == chunk.first_segment;
      needs_batch = needs_batch || reads_batch(kind, set.documents);
      const bool parts = set.fp8 && set.several() && has_norm(kind) && has_output(kind);
      const auto compute = [&](InstructionKind pass, InstructionKind scale) {
        if (!parts) return for_each_micro_batch({.kind = pass, .chunk = c, .segment = segment});
        for (const model::PassPart part : {model::PassPart::first, model::PassPart::last})
          for_each_micro_batch({.kind = pass, .part = part, .chunk = c, .segment = segment});
        for_each_micro_batch({.kind = scale, .chunk = c, .segment = segment, .group = groups::tensor});
      };
      compute(forward, exchange_forward_scale);
      if (set.training) for_each_micro_batch({.kind = backward_weight, .chunk = c, .segment = segment});
      if (!has_output(kind)) {
        if (set.several())
          for_each_micro_batch({.kind = exchange_loss, .chunk = c, .segment = segment, .group = groups::tensor});
        for_each_micro_batch({.kind = loss, .chunk = c, .segment = segment});
      }
      if (!has_norm(kind)) continue;
      exchange(exchange_forward, segment, {.sum = set.several() && !first, .norm = true, .gather = set.sequence_parallel});
      if (!set.training) continue;
      if (set.recompute && has_output(kind))
        exchange(exchange_recompute, segment, {.norm = true, .gather = set.sequence_parallel});
      compute(backward_input, exchange_backward_scale);
      exchange(exchange_backward, segment,
               {.sum = set.several(), .norm = true, .gather = set.sequence_parallel && !(first && before)});
    }
  }
  if (needs_batch) for_each_micro_batch({.kind = load_batch});
  if (!set.training) return list;
  const std::vector<Bucket>& buckets = set.of(rank).buckets;
  const auto is_tied = [](const Bucket& b) { return b.partial.contains(Axis::pipeline); };
  if (std::any_of(buckets.begin(), buckets.end(), is_tied)) list.push_back({.kind = meet, .group = groups::tied});
  for (int b = 0; b < static_cast<int>(buckets.size()); ++b) {
    const Instruction reduce{.kind = reduce_gradients, .bucket = b, .group = groups::replicas};
    if (set.zero >= 2) {
      for_each_micro_batch(reduce);
    } else {
      list.push_back(reduce);
    }
    buckets[static_cast<std::size_t>(b)].further().for_each(
        [&](Axis axis) { list.push_back({.kind = reduce_gradients, .bucket = b, .group = group_along(axis)}); });
    if (set.zero >= 1) list.push_back({.kind = gather_weights, .bucket = b, .group = groups::replicas});
    if (!set.fp8 || !buckets[static_cast<std::size_t>(b)].products) continue;
    list.push_back({.kind = scale_weights, .bucket = b});
    if (set.several()) list.push_back({.kind = exchange_weight_scales, .bucket = b, .group = groups::tensor});
    list.push_back({.kind = quantize_weights, .bucket = b});
  }
  list.push_back({.kind = gradient_norm});
  list.push_back({.kind = reduce_scalars, .group = groups::world});
  list.push_back({.kind = update});
  return list;
}

bool may_run(const StreamSpec& stream, const Instruction& i, const Program& program) {
  using enum InstructionKind;
  switch (i.kind) {
    // All on one stream: they share scratch memory.
    case forward:
    case loss:
    case backward_input:
    case backward_weight:
    case gradient_norm:
    case update: return stream.role == StreamRole::compute;
    case exchange_forward:
    case exchange_recompute:
    case exchange_backward:
    case exchange_forward_scale:
    case exchange_backward_scale:
    case exchange_weight_scales:
    case exchange_loss: return stream.role == StreamRole::compute || (program.several && stream.role == StreamRole::exchange);
    case load_batch: return stream.role == StreamRole::compute || stream.role == StreamRole::copy;
    case meet:
    case reduce_gradients:
      if (i.group == groups::tensor) return stream.role == StreamRole::compute || stream.role == StreamRole::exchange;
      return stream.role == StreamRole::compute || stream.role == StreamRole::reduce;
    case reduce_scalars:
    case gather_weights:
    case scale_weights:
    case quantize_weights: return stream.role == StreamRole::compute || stream.role == StreamRole::reduce;
    case send_activation: return stream == StreamSpec{StreamRole::send, program.chunk_of(i).next_rank};
    case send_gradient: return stream == StreamSpec{StreamRole::send, program.chunk_of(i).previous_rank};
    case receive_activation: return stream == StreamSpec{StreamRole::receive, program.chunk_of(i).previous_rank};
    case receive_gradient: return stream == StreamSpec{StreamRole::receive, program.chunk_of(i).next_rank};
  }
  return false;
}

// How many slots the program declares for a buffer's like.
int slots_of(const Program& program, const BufferId& buffer) {
  const auto of_chunk = [&](int Chunk::* slots) { return program.chunks[static_cast<std::size_t>(buffer.index)].*slots; };
  const auto of_segment = [&](int Chunk::* slots) {
    for (const Chunk& c : program.chunks) {
      if (buffer.index >= c.first_segment && buffer.index < c.end_segment) return c.*slots;
    }
    return 0;
  };
  switch (buffer.kind) {
    case BufferKind::batch: return program.batch_slots;
    case BufferKind::input: return of_chunk(&Chunk::input_slots);
    case BufferKind::norm:
    case BufferKind::activations:
    case BufferKind::output: return of_segment(&Chunk::activation_slots);
    case BufferKind::norm_again:
    case BufferKind::output_gradient:
    case BufferKind::stash: return of_segment(&Chunk::stash_slots);
    case BufferKind::product:
    case BufferKind::statistics:
    case BufferKind::norm_gradient: return buffer.index >= 0 && buffer.index < program.lanes ? 1 : 0;
    case BufferKind::received_gradient: return of_chunk(&Chunk::gradient_in_slots);
    case BufferKind::sent_gradient: return of_chunk(&Chunk::gradient_out_slots);
    case BufferKind::weights:
    case BufferKind::weight_scales:
    case BufferKind::quantized_weights:
    case BufferKind::gradients:
    case BufferKind::norm_gradients:
    case BufferKind::gradient_sums:
    case BufferKind::scalars:
    case BufferKind::arrival: return 1;
  }
  return 0;
}

class RankStructure {
 public:
  RankStructure(const ProgramSet& set, int rank, ProblemList& problems)
      : set_(set), rank_(rank), program_(set.program(rank)), buckets_(set.of(rank).buckets), problems_(problems) {}

  void check() {
    check_streams();
    check_buckets();
    std::set<decltype(identity({}))> expected;
    for (const Instruction& i : expected_instructions(set_, rank_)) expected.insert(identity(i));
    for (int n = 0; n < static_cast<int>(program_.instructions.size()); ++n) {
      if (!expected.contains(identity(program_.at(n)))) {
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
      tied_sum = tied_sum || (buckets_[b].partial.contains(Axis::pipeline) && (has(0) || has(set_.head())));
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

  // Memory of a norm that is recomputed is used for other things after forward.
  template <typename Report>
  void check_norm(const Instruction& i, const Report& problem) {
    const bool has = i.segment < set_.segment_count() && has_norm(set_.kind(i.segment)) && has_output(set_.kind(i.segment));
    const bool recomputed = set_.recompute && has && (!is_exchange(i.kind) || i.exchange.norm);
    if (i.recomputed == recomputed) return;
    problem(recomputed ? "uses the norm that forward has not kept" : "uses a recomputed norm, but forward keeps it");
  }

  template <typename Report>
  void check_fields(const Instruction& i, const Report& problem) {
    const bool forward = i.kind == InstructionKind::forward, weight = i.kind == InstructionKind::backward_weight;
    const bool begins = i.part != model::PassPart::last;
    if (i.segment < 0) return;
    const model::SegmentKind kind = i.segment < set_.segment_count() ? set_.kind(i.segment) : model::SegmentKind::head;
    const bool tokens = reads_tokens(kind) && (forward || weight);
    const bool targets = i.kind == InstructionKind::loss || (reads_targets(kind) && forward && set_.several());
    const bool starts = kind == model::SegmentKind::attention && set_.documents == Documents::separate &&
                        (forward || i.kind == InstructionKind::backward_input) && begins;
    if ((tokens || targets || starts) && i.batch_slot < 0) problem("has no batch");
    const bool backward = weight || i.kind == InstructionKind::backward_input || i.kind == InstructionKind::exchange_backward;
    if (backward || i.kind == InstructionKind::exchange_recompute) check_norm(i, problem);
    if (!backward) return;
    const Chunk& chunk = program_.chunk_of(i);
    const bool of_last = i.segment == chunk.last_segment() || i.segment == chunk.end_segment;
    if (of_last && chunk.next_rank >= 0 && i.gradient_in < 0) problem("has no gradient of its output");
    const bool of_first = i.segment == chunk.first_segment && i.kind == InstructionKind::exchange_backward;
    if (of_first && i.gradient_out < 0) problem("has no place for the gradient of its input");
  }

  const ProgramSet& set_;
  int rank_;
  const Program& program_;
  const std::vector<Bucket>& buckets_;
  ProblemList& problems_;
};

// That the chunks of the pipeline ranks of one data and tensor coordinate are stages 0, 1, .. of the whole model, and name the
// ranks of their neighbours.
void check_stages(const ProgramSet& set, int first_rank, ProblemList& problems) {
  struct Stage {
    int pipeline = 0;
    const Chunk* chunk = nullptr;
  };
  std::map<int, Stage> stages;
  const auto problem = [&](int pipeline, const std::string& words) {
    problems.add(set.layout.moved(first_rank, Axis::pipeline, pipeline), whole_program, words);
  };
  for (int pipeline = 0; pipeline < set.layout.size(Axis::pipeline); ++pipeline) {
    for (const Chunk& c : set.program(set.layout.moved(first_rank, Axis::pipeline, pipeline)).chunks) {
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
    if (set.layout.coordinate(rank, Axis::pipeline) == 0) check_stages(set, rank, problems);
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
