#include "parallel/program/pipeline_program.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "core/error.h"
#include "ops/quantize.h"
#include "parallel/program/program_set.h"
#include "parallel/program/program_waits.h"
#include "parallel/schedule/braids.h"
#include "parallel/schedule/pass_messages.h"

namespace plait::parallel {
namespace {

class ProgramBuilder {
 public:
  explicit ProgramBuilder(const ProgramSpec& spec) : spec_(spec), slots_(spec.schedule.stages, spec.rank) {
    program_.streams = {{StreamRole::compute, -1}, {StreamRole::copy, -1}, {StreamRole::reduce, -1}};
    const Schedule& schedule = spec.schedule;
    require(static_cast<int>(spec.stages.size()) == schedule.stages.count(),
            "ProgramSpec: a range of segments for every stage");
    for (int chunk = 0; chunk < schedule.stages.chunks(spec.rank); ++chunk) {
      const int stage = schedule.stages.stage(spec.rank, chunk);
      const SegmentRange segments = spec.stages[static_cast<std::size_t>(stage)];
      Chunk c{.stage = stage, .first_segment = segments.first, .end_segment = segments.end};
      c.previous_rank = stage > 0 ? remote(schedule.stages.rank_of(stage - 1)) : -1;
      c.next_rank = stage + 1 < schedule.stages.count() ? remote(schedule.stages.rank_of(stage + 1)) : -1;
      program_.chunks.push_back(c);
    }
    program_.segments = model::segments(spec.sizes);
    last_reader_ = find_last_reader();
    for (const Bucket& bucket : spec.buckets) missing_.emplace_back(bucket.segments.begin(), bucket.segments.end());
    require(spec.stages.back().end == spec.sizes.shape.segments(), "ProgramSpec: the stages are not the model's");
  }

  Program train() {
    run_passes();
    finish_step();
    return take();
  }

  Program evaluate() {
    run_stages();
    return take();
  }

 private:
  void run_passes() {
    visit_step(
        spec_.schedule, spec_.rank, spec_.overlap, [this](const PassMessage& message) { receive(message); },
        [this](std::span<const Pass> passes) { compute(passes); });
  }

  void run_stages() {
    const StageMap& stages = spec_.schedule.stages;
    for (int stage = 0; stage < stages.count(); ++stage) {
      if (stages.rank_of(stage) != spec_.rank) continue;
      const Pass pass{PassKind::forward, stages.chunk_of(stage), 0};
      const Chunk& c = chunk(pass.chunk);
      if (c.previous_rank >= 0) receive({c.previous_rank, spec_.rank, false, pass.chunk, 0});
      compute({&pass, 1});
    }
  }

  // The chunk that reads the batch last: of the chunks that need it, the one with the first stage, which gradients reach last.
  // -1: no chunk needs the batch.
  int find_last_reader() const {
    int found = -1;
    for (int n = 0; n < static_cast<int>(program_.chunks.size()); ++n) {
      const Chunk& c = program_.chunks[static_cast<std::size_t>(n)];
      bool reads = false;
      for (int segment = c.first_segment; segment < c.end_segment; ++segment) reads = reads || reads_batch(segment);
      if (reads && (found < 0 || c.stage < program_.chunks[static_cast<std::size_t>(found)].stage)) found = n;
    }
    return found;
  }

  int remote(int rank) const { return rank == spec_.rank ? -1 : rank; }
  Chunk& chunk(int index) { return program_.chunks[static_cast<std::size_t>(index)]; }
  ChunkSlots& slots(int index) { return slots_.of(index); }
  // The chunk that holds a neighbouring stage, for stages on this rank only.
  int chunk_of_stage(int stage) const { return spec_.schedule.stages.chunk_of(stage); }

  int stream(StreamRole role, int peer = -1) {
    if ((role == StreamRole::reduce || role == StreamRole::exchange) && !spec_.overlap) role = StreamRole::compute;
    const StreamSpec wanted{role, peer};
    const auto it = std::find(program_.streams.begin(), program_.streams.end(), wanted);
    if (it != program_.streams.end()) return static_cast<int>(it - program_.streams.begin());
    program_.streams.push_back(wanted);
    return static_cast<int>(program_.streams.size()) - 1;
  }

  int add(Instruction instruction) {
    if (!spec_.overlap && instruction.stream == 0) {
      instruction.waits.insert(instruction.waits.end(), exposed_.begin(), exposed_.end());
      exposed_.clear();
    }
    program_.instructions.push_back(std::move(instruction));
    return static_cast<int>(program_.instructions.size()) - 1;
  }

  // Without overlap, the next computation waits for this message.
  void add_message(Instruction instruction) {
    const int index = add(std::move(instruction));
    if (!spec_.overlap) exposed_.push_back(index);
  }

  void receive(const PassMessage& message) {
    Instruction i{.kind = message.gradient ? InstructionKind::receive_gradient : InstructionKind::receive_activation,
                  .stream = stream(StreamRole::receive, message.sender),
                  .micro_batch = message.micro_batch,
                  .chunk = message.chunk};
    (message.gradient ? i.gradient_in : i.input_slot) = slots_.receive(message);
    add_message(std::move(i));
  }

  // Adds a computation of a segment and the exchanges that follow it. Something else may come between two parts.
  using Part = std::function<void()>;
  using Parts = std::vector<Part>;  // those of one segment

  void compute(std::span<const Pass> passes) {
    std::vector<std::vector<Parts>> segments;  // by pass
    std::vector<std::vector<std::size_t>> counts;
    for (const Pass& pass : passes) {
      segments.push_back(begin(pass));
      std::vector<std::size_t>& of_pass = counts.emplace_back();
      for (const Parts& parts : segments.back()) of_pass.push_back(parts.size());
    }
    program_.lanes = std::max(program_.lanes, static_cast<int>(passes.size()));
    for (const BraidedPart& next : order_of_parts(counts)) {
      lane_ = static_cast<int>(next.pass);
      segments[next.pass][next.segment][next.part]();
    }
    for (const Pass& pass : passes) send(pass);
    for (const Pass& pass : passes) {
      slots_.finish(pass);
      if (adds_to_weights(pass.kind) && pass.chunk == last_reader_) batches_.give_back(pass.micro_batch);
    }
  }

  // The parts that a pass computes, by segment and in order; each segment has at least one. Takes the slots that the pass
  // needs.
  std::vector<Parts> begin(const Pass& pass) {
    slots_.begin(pass);
    switch (pass.kind) {
      case PassKind::forward: return forward(pass);
      case PassKind::backward: return backward(pass, true);
      case PassKind::backward_input: return backward(pass, false);
      case PassKind::backward_weight: return backward_weight(pass);
    }
    throw InternalError("PassKind: no such kind");
  }

  void send(const Pass& pass) {
    const Chunk& c = chunk(pass.chunk);
    ChunkSlots& s = slots(pass.chunk);
    if (pass.kind == PassKind::forward && c.next_rank >= 0) {
      add_message({.kind = InstructionKind::send_activation,
                   .stream = stream(StreamRole::send, c.next_rank),
                   .micro_batch = pass.micro_batch,
                   .chunk = pass.chunk,
                   .slot = s.activations.of(pass.micro_batch)});
    }
    if (yields_gradient(pass.kind) && c.previous_rank >= 0) {
      add_message({.kind = InstructionKind::send_gradient,
                   .stream = stream(StreamRole::send, c.previous_rank),
                   .micro_batch = pass.micro_batch,
                   .chunk = pass.chunk,
                   .gradient_out = s.sent_gradients.at(pass.micro_batch)});
    }
  }

  bool reads_batch(int segment) const { return model::reads_batch(program_.kind(segment), spec_.sizes.micro_batch.documents); }

  // The slot of a micro-batch's batch. The first instruction that needs the batch loads it, once. Data comes in ascending
  // order, so earlier micro-batches that will be needed later are loaded with it.
  int batch_slot(int micro_batch) {
    for (; loaded_ <= micro_batch; ++loaded_) {
      add({.kind = InstructionKind::load_batch,
           .stream = stream(StreamRole::copy),
           .micro_batch = loaded_,
           .batch_slot = batches_.take(loaded_)});
    }
    return batches_.of(micro_batch);
  }

  // The fields that all instructions of a pass share.
  Instruction instruction(InstructionKind kind, const Pass& pass, int segment) {
    const Chunk& c = chunk(pass.chunk);
    ChunkSlots& s = slots(pass.chunk);
    Instruction i{.kind = kind, .micro_batch = pass.micro_batch, .chunk = pass.chunk, .segment = segment, .lane = lane_};
    i.slot = s.activations.of(pass.micro_batch);
    if (c.previous_rank >= 0) {
      i.input_slot = s.inputs.of(pass.micro_batch);
    } else if (c.stage > 0) {
      i.input_slot = slots(chunk_of_stage(c.stage - 1)).activations.of(pass.micro_batch);
    }
    return i;
  }

  Instruction segment_instruction(InstructionKind kind, const Pass& pass, int segment) {
    Instruction i = instruction(kind, pass, segment);
    // The weight part of a block needs only what its input part has left, not the batch.
    const bool of_block = has_norm(program_.kind(segment)) && has_output(program_.kind(segment));
    const bool needed = reads_batch(segment) && !(of_block && kind == InstructionKind::backward_weight);
    if (needed) i.batch_slot = batch_slot(pass.micro_batch);
    return i;
  }

  // Adds a list of steps. If it has collectives, all of it is on their stream, else its computations are on the compute stream.
  // `make`: the instruction of a step, with slots and places.
  template <typename Make>
  void add_steps(const model::PassSteps& steps, const Make& make) {
    const bool communicates = std::ranges::any_of(steps, [](const model::PassStep& s) { return s.collective.has_value(); });
    const int on = communicates ? stream(stream_role(Purpose::activations)) : 0;
    for (const model::PassStep& step : steps) {
      Instruction i = make(step.collective ? InstructionKind::collective : kind_of(step.computation));
      if (const auto& c = step.collective) {
        const BufferId buffer = pass_buffer(program_, i, c->tensor);
        i.collective = {c->operation, Group{c->axes}, Purpose::activations, buffer, buffer, c->tensor,
                        c->elements,  c->dtype,       c->into_free};
      }
      i.part = step.part;
      i.adds_residual = step.adds_residual;
      i.stream = on;
      add(std::move(i));
    }
  }

  // `steps` cut into parts for braids: each is one computation and the collectives behind it.
  static std::vector<model::PassSteps> cut(const model::PassSteps& steps) {
    std::vector<model::PassSteps> parts;
    for (const model::PassStep& step : steps) {
      if (!step.collective) parts.emplace_back();
      parts.back().push_back(step);
    }
    return parts;
  }

  // The number of micro-batches for which the same has been computed in this step; counts this one for the next call.
  int computed_before(const Instruction& i) { return computed_[{i.kind, i.segment}]++; }

  std::vector<Parts> forward(const Pass& pass) {
    const Chunk& c = chunk(pass.chunk);
    std::vector<Parts> segments;
    for (int segment = c.first_segment; segment < c.end_segment; ++segment) {
      Parts& parts = segments.emplace_back();
      const std::vector<model::PassSteps> list = cut(model::forward_steps(spec_.sizes, segment));
      for (std::size_t n = 0; n < list.size(); ++n) {
        parts.push_back([this, pass, segment, steps = list[n], is_first = n == 0, is_last = n + 1 == list.size()] {
          if (is_first && segment == chunk(pass.chunk).first_segment) add_before(pass, segment);
          forward_part(pass, segment, steps);
          // These collectives are added at once; those of the other pass of a braid come behind them.
          if (is_last && has_output(program_.kind(segment))) add_before(pass, segment + 1);
        });
      }
    }
    return segments;
  }

  // A computation of forward, or the loss, and the collectives behind it.
  void forward_part(const Pass& pass, int segment, const model::PassSteps& steps) {
    if (steps.front().computation == model::Computation::loss) return loss(pass, segment);
    Instruction i = steps.front().part == 0 ? segment_instruction(InstructionKind::forward, pass, segment)
                                            : instruction(InstructionKind::forward, pass, segment);
    // Targets are needed for the loss, and for the statistics of logits that several ranks exchange.
    if (!has_output(program_.kind(segment)) && !program_.segment(segment).partial) i.batch_slot = -1;
    i.part = steps.front().part;
    add(std::move(i));
    add_steps({steps.begin() + 1, steps.end()}, [&](InstructionKind kind) { return instruction(kind, pass, segment); });
  }

  // Adds what lies in front of a segment in forward, or behind the last segment of a chunk.
  void add_before(const Pass& pass, int segment) {
    const Chunk& c = chunk(pass.chunk);
    const bool precedes = segment < c.end_segment && has_norm(program_.kind(segment));
    add_steps(model::steps_before(spec_.sizes, segment, segment > c.first_segment, precedes),
              [&](InstructionKind kind) { return instruction(kind, pass, segment); });
  }

  void loss(const Pass& pass, int head) {
    Instruction i = segment_instruction(InstructionKind::loss, pass, head);
    i.accumulate = computed_before(i) > 0;
    add(std::move(i));
  }

  // Sets the slots of gradients in an instruction of backward.
  Instruction in_backward(Instruction i, const Pass& pass) {
    const Chunk& c = chunk(pass.chunk);
    ChunkSlots& s = slots(pass.chunk);
    i.stash = s.stashes.of(pass.micro_batch);
    if (c.next_rank >= 0) i.gradient_in = s.gradients_in.of(pass.micro_batch);
    if (c.previous_rank >= 0) {
      i.gradient_out = s.sent_gradients.at(pass.micro_batch);
    } else if (c.stage > 0) {
      i.gradient_out = slots(chunk_of_stage(c.stage - 1)).stashes.of(pass.micro_batch);
    }
    i.recomputed = i.segment < c.end_segment && program_.segment(i.segment).recomputes_norm;
    return i;
  }

  // Says for an instruction that writes weight gradients whether it adds to them or overwrites them.
  Instruction adding(Instruction i) {
    i.accumulate = computed_before(i) > 0 && !reduces_every_micro_batch();
    i.accumulate_tokens = spec_.tied_here || i.accumulate;
    return i;
  }

  Instruction backward_instruction(InstructionKind kind, const Pass& pass, int segment) {
    return in_backward(instruction(kind, pass, segment), pass);
  }

  void recompute(const Pass& pass, int segment) {
    if (segment < chunk(pass.chunk).first_segment) return;
    add_steps(model::recompute_steps(spec_.sizes, segment),
              [&](InstructionKind kind) { return backward_instruction(kind, pass, segment); });
  }

  std::vector<Parts> backward(const Pass& pass, bool whole) {
    const Chunk& c = chunk(pass.chunk);
    std::vector<Parts> segments;
    for (int segment = c.last_segment(); segment >= c.first_segment; --segment) {
      Parts& parts = segments.emplace_back();
      // The received gradient and the recomputed norm have to be there first.
      const model::PassSteps received = c.next_rank >= 0 ? model::received_gradient_steps(spec_.sizes) : model::PassSteps();
      if (segment == c.last_segment() && (!received.empty() || program_.segment(segment).recomputes_norm)) {
        parts.push_back([this, pass, received, end = c.end_segment] {
          add_steps(received, [&](InstructionKind kind) { return backward_instruction(kind, pass, end); });
          recompute(pass, end - 1);
        });
      }
      const std::vector<model::PassSteps> list = cut(model::backward_steps(spec_.sizes, segment));
      for (std::size_t n = 0; n < list.size(); ++n) {
        parts.push_back([this, pass, segment, steps = list[n], is_last = n + 1 == list.size()] {
          input_part(pass, segment, steps, is_last);
        });
      }
      // The head's weight part follows at once: its logits are too large to keep.
      if (whole || !has_output(program_.kind(segment))) parts.push_back([this, pass, segment] { weight_part(pass, segment); });
      if (parts.empty()) segments.pop_back();
    }
    return segments;
  }

  // A computation of backward_input and the collectives behind it. Behind the last one come the steps that lead to the segment
  // before.
  void input_part(const Pass& pass, int segment, const model::PassSteps& steps, bool is_last) {
    const Chunk& c = chunk(pass.chunk);
    if (is_last) recompute(pass, segment - 1);  // needs nothing of this segment, so it goes on behind it
    Instruction i = steps.front().part == 0 ? segment_instruction(InstructionKind::backward_input, pass, segment)
                                            : instruction(InstructionKind::backward_input, pass, segment);
    i.part = steps.front().part;
    add(in_backward(std::move(i), pass));
    add_steps({steps.begin() + 1, steps.end()},
              [&](InstructionKind kind) { return backward_instruction(kind, pass, segment); });
    if (!is_last) return;
    const bool sent = segment == c.first_segment && c.previous_rank >= 0;
    add_steps(model::steps_behind_backward(spec_.sizes, segment, sent), [&](InstructionKind kind) {
      Instruction behind = backward_instruction(kind, pass, segment);
      return kind == InstructionKind::norm_backward ? adding(std::move(behind)) : behind;
    });
  }

  std::vector<Parts> backward_weight(const Pass& pass) {
    const Chunk& c = chunk(pass.chunk);
    std::vector<Parts> segments;
    for (int segment = c.last_segment(); segment >= c.first_segment; --segment) {
      if (has_output(program_.kind(segment))) segments.push_back({[this, pass, segment] { weight_part(pass, segment); }});
    }
    return segments;
  }

  void weight_part(const Pass& pass, int segment) {
    add(adding(in_backward(segment_instruction(InstructionKind::backward_weight, pass, segment), pass)));
    const bool last = computed_[{InstructionKind::backward_weight, segment}] == spec_.schedule.micro_batches;
    if (!reduces_every_micro_batch() && !last) return;
    for (std::size_t b = 0; b < spec_.buckets.size(); ++b) {
      if (missing_[b].erase(segment) == 0 || !missing_[b].empty()) continue;
      missing_[b].insert(spec_.buckets[b].segments.begin(), spec_.buckets[b].segments.end());
      complete_.push_back({static_cast<int>(b), pass.micro_batch});
    }
    // Under ZeRO-2 the next buckets need the memory.
    if (spec_.overlap || reduces_every_micro_batch()) reduce_complete();
  }

  bool reduces_every_micro_batch() const { return spec_.zero >= 2; }

  // Adds a collective on the stream of its purpose; `of` has every field but kind and stream.
  void add_collective(Instruction of) {
    of.kind = InstructionKind::collective;
    of.stream = stream(stream_role(of.collective.purpose));
    add(std::move(of));
  }
  // A collective over a whole bucket. If `destination` is another buffer, this rank keeps its share of the sum there.
  Collective over_bucket(Operation operation, const Group& group, Purpose purpose, BufferKind source, BufferKind destination,
                         int bucket) const {
    const Bucket& b = spec_.buckets[static_cast<std::size_t>(bucket)];
    const int from = source == BufferKind::gradients ? b.place : bucket;
    return {.operation = operation,
            .group = group,
            .purpose = purpose,
            .source = {source, from, 0},
            .destination = {destination, bucket, 0},
            .elements = b.range.count,
            .dtype = purpose == Purpose::gradients ? spec_.gradient_type : spec_.sizes.compute};
  }

  void reduce_complete() {
    for (const auto& [bucket, micro_batch] : complete_) {
      const Operation operation = spec_.zero > 0 ? Operation::reduce_scatter : Operation::sum;
      Instruction i{.bucket = bucket,
                    .collective = over_bucket(operation, groups::replicas, Purpose::gradients, BufferKind::gradients,
                                              BufferKind::gradient_sums, bucket)};
      if (reduces_every_micro_batch()) {
        i.micro_batch = micro_batch;
        i.accumulate = reduced_[bucket]++ > 0;
      }
      add_collective(std::move(i));
    }
    complete_.clear();
  }

  void finish_step() {
    reduce_complete();
    constexpr BufferId scalars{BufferKind::scalars, 0, 0}, arrival{BufferKind::arrival, 0, 0};
    const DType scalar = spec_.sizes.compute == DType::f64 ? DType::f64 : DType::f32;
    bool met = false;
    for (std::size_t b = 0; b < spec_.buckets.size(); ++b) {
      const int bucket = static_cast<int>(b);
      spec_.buckets[b].further().for_each([&](Axis axis) {
        const Group group = group_along(axis);
        // Stages come to this reduction one after the other. The barrier tells waiting for another stage apart from the
        // reduction itself.
        if (axis == stage_axis && !met)
          add_collective({.collective = {Operation::barrier, group, Purpose::gradients, arrival, arrival, {}, 1, scalar}});
        met = met || axis == stage_axis;
        Collective sum = over_bucket(Operation::sum, group, Purpose::gradients, BufferKind::gradient_sums,
                                     BufferKind::gradient_sums, bucket);
        if (spec_.zero > 0) sum.elements = spec_.buckets[b].shard_elements();  // as the first reduction has left it
        add_collective({.bucket = bucket, .collective = sum});
      });
    }
    add({.kind = InstructionKind::gradient_norm});
    add_collective({.collective = {Operation::sum, groups::world, Purpose::scalars, scalars, scalars, {}, 3, scalar}});
    add({.kind = InstructionKind::update});
    // The order is that in which the next forward needs the buckets: the embedding's is the last of the flat buffer.
    const int on = spec_.zero > 0 ? stream(stream_role(Purpose::weights)) : 0;
    for (std::size_t b = spec_.buckets.size(); b-- > 0;) {
      const int bucket = static_cast<int>(b);
      if (spec_.zero > 0) {
        add_collective({.bucket = bucket,
                        .collective = over_bucket(Operation::all_gather, groups::replicas, Purpose::weights,
                                                  BufferKind::weights, BufferKind::weights, bucket)});
      }
      if (!spec_.sizes.fp8 || !spec_.buckets[b].products) continue;
      add({.kind = InstructionKind::scale_weights, .stream = on, .bucket = bucket});
      if (spec_.sizes.split.size > 1) {
        const BufferId scales{BufferKind::weight_scales, bucket, 0};
        add_collective({.bucket = bucket,
                        .collective = {Operation::max,
                                       groups::tensor,
                                       Purpose::weights,
                                       scales,
                                       scales,
                                       {},
                                       spec_.buckets[b].products * ops::scale_floats,
                                       DType::f32}});
      }
      add({.kind = InstructionKind::quantize_weights, .stream = on, .bucket = bucket});
    }
  }

  Program take() {
    program_.batch_slots = std::max(1, batches_.count());
    for (std::size_t c = 0; c < program_.chunks.size(); ++c) {
      Chunk& chunk = program_.chunks[c];
      const ChunkSlots& slots = slots_.of(static_cast<int>(c));
      chunk.activation_slots = std::max(1, slots.activations.count());
      chunk.stash_slots = std::max(1, slots.stashes.count());
      chunk.input_slots = slots.inputs.count();
      chunk.gradient_in_slots = slots.gradients_in.count();
      chunk.gradient_out_slots = chunk.previous_rank >= 0 ? gradient_out_slots : 0;
    }
    derive_waits(program_, spec_.buckets);
    find_computed_beside(program_);
    return std::move(program_);
  }

  const ProgramSpec& spec_;
  Program program_;
  RankSlots slots_;
  int lane_ = 0;  // lane of the pass whose segment is being added
  SlotTable batches_;
  int last_reader_ = -1;                                     // chunk
  int loaded_ = 0;                                           // number of micro-batches loaded into batches_
  std::map<std::pair<InstructionKind, int>, int> computed_;  // number of micro-batches, by kind and segment
  std::map<int, int> reduced_;                               // number of micro-batches, by bucket
  std::vector<std::set<int>> missing_;                       // by bucket: segments whose gradients are still to come
  std::vector<std::pair<int, int>> complete_;                // (bucket, micro-batch) to be reduced
  std::vector<int> exposed_;                                 // messages that the next computation has to wait for
};

// Names in each send the buffer of the receiver that the message fills: a message goes straight into the buffer in which its
// receiver keeps it. The schedule alone decides which one that is; an evaluation uses the first slots only.
void name_places(Program& program, const ProgramSpec& spec, bool training) {
  std::map<int, std::map<PassMessage, int>> slots;  // by receiver
  for (Instruction& i : program.instructions) {
    if (!is_send(i.kind)) continue;
    const PassKind made_by = i.kind == InstructionKind::send_gradient ? PassKind::backward : PassKind::forward;
    const PassMessage message = sent_by(spec.schedule, spec.rank, {made_by, i.chunk, i.micro_batch}).value();
    std::map<PassMessage, int>& of_receiver = slots[message.receiver];
    if (training && of_receiver.empty()) of_receiver = received_slots(spec.schedule, message.receiver, spec.overlap);
    i.peer_chunk = message.chunk;
    i.peer_slot = training ? of_receiver.at(message) : 0;
  }
}

}  // namespace

Program training_program(const ProgramSpec& spec) {
  Program program = ProgramBuilder(spec).train();
  name_places(program, spec, true);
  return program;
}

Program evaluation_program(const ProgramSpec& spec) {
  Program program = ProgramBuilder(spec).evaluate();
  name_places(program, spec, false);
  return program;
}

}  // namespace plait::parallel
