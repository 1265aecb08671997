#include "parallel/program.h"

#include "core/error.h"

namespace plait::parallel {
namespace {

// The segment after or before another, on this rank: where its buffers of the residual stream are.
bool ends_chunk(const Program& program, const Instruction& i) { return i.segment == program.chunk_of(i).last_segment(); }
bool begins_chunk(const Program& program, const Instruction& i) { return i.segment == program.chunk_of(i).first_segment; }

void add_segment_uses(std::vector<BufferUse>& uses, const Program& program, const Instruction& i,
                      const std::vector<Bucket>& buckets) {
  const bool forward = i.kind == InstructionKind::forward;
  const bool first = i.segment == 0;
  const bool head = i.gradient_in < 0 && !forward;  // nothing comes after the head
  if (i.batch_slot >= 0) uses.push_back({{BufferKind::batch, 0, i.batch_slot}, false});
  if (!first && i.kind != InstructionKind::backward_weight) uses.push_back({input_buffer(program, i), false});
  uses.push_back({{BufferKind::activations, i.segment, i.slot}, forward});
  if (forward) {
    uses.push_back({{BufferKind::output, i.segment, i.slot}, true});
  } else {
    uses.push_back({{BufferKind::stash, i.segment, i.stash}, i.kind == InstructionKind::backward_input});
    // The first to read it gathers the other ranks' rows into it, under sequence parallelism.
    if (!head) uses.push_back({output_gradient_buffer(program, i), i.kind == InstructionKind::backward_input || first});
  }
  if (i.kind == InstructionKind::backward_input && i.gradient_out >= 0)
    uses.push_back({input_gradient_buffer(program, i), true});
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    bool holds = false;
    for (const int segment : buckets[b].segments) holds = holds || segment == i.segment;
    if (!holds) continue;
    if (i.kind != InstructionKind::backward_weight) uses.push_back({{BufferKind::weights, static_cast<int>(b), 0}, false});
    if (!forward) uses.push_back({{BufferKind::gradients, buckets[b].place, 0}, true});
  }
}

}  // namespace

BufferId input_buffer(const Program& program, const Instruction& i) {
  if (begins_chunk(program, i) && program.chunk_of(i).previous_rank >= 0) return {BufferKind::input, i.chunk, i.input_slot};
  return {BufferKind::output, i.segment - 1, i.input_slot};
}

BufferId output_gradient_buffer(const Program& program, const Instruction& i) {
  if (ends_chunk(program, i) && program.chunk_of(i).next_rank >= 0)
    return {BufferKind::received_gradient, i.chunk, i.gradient_in};
  return {BufferKind::output_gradient, i.segment, i.gradient_in};
}

BufferId input_gradient_buffer(const Program& program, const Instruction& i) {
  if (begins_chunk(program, i) && program.chunk_of(i).previous_rank >= 0)
    return {BufferKind::sent_gradient, i.chunk, i.gradient_out};
  return {BufferKind::output_gradient, i.segment - 1, i.gradient_out};
}

std::vector<BufferUse> buffer_uses(const Program& program, const Instruction& i, const std::vector<Bucket>& buckets) {
  std::vector<BufferUse> uses;
  const auto all_buckets = [&](BufferKind kind, bool writes) {
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      const int index = kind == BufferKind::gradients ? buckets[b].place : static_cast<int>(b);
      uses.push_back({{kind, index, 0}, writes});
    }
  };
  switch (i.kind) {
    case InstructionKind::load_batch: uses.push_back({{BufferKind::batch, 0, i.batch_slot}, true}); break;
    case InstructionKind::receive_activation: uses.push_back({{BufferKind::input, i.chunk, i.input_slot}, true}); break;
    case InstructionKind::send_activation:
      uses.push_back({{BufferKind::output, program.chunk_of(i).last_segment(), i.slot}, false});
      break;
    case InstructionKind::receive_gradient:
      uses.push_back({{BufferKind::received_gradient, i.chunk, i.gradient_in}, true});
      break;
    case InstructionKind::send_gradient: uses.push_back({{BufferKind::sent_gradient, i.chunk, i.gradient_out}, false}); break;
    case InstructionKind::forward:
    case InstructionKind::backward_input:
    case InstructionKind::backward_weight: add_segment_uses(uses, program, i, buckets); break;
    case InstructionKind::meet: uses.push_back({{BufferKind::arrival, 0, 0}, true}); break;
    case InstructionKind::reduce_gradients: {
      const Bucket& bucket = buckets[static_cast<std::size_t>(i.bucket)];
      uses.push_back({{BufferKind::gradients, bucket.place, 0}, true});
      uses.push_back({{BufferKind::gradient_sums, i.bucket, 0}, true});
      break;
    }
    case InstructionKind::gradient_norm:
      all_buckets(BufferKind::gradient_sums, false);
      uses.push_back({{BufferKind::scalars, 0, 0}, true});
      break;
    case InstructionKind::reduce_scalars: uses.push_back({{BufferKind::scalars, 0, 0}, true}); break;
    case InstructionKind::update:
      all_buckets(BufferKind::gradient_sums, false);
      all_buckets(BufferKind::weights, true);
      uses.push_back({{BufferKind::scalars, 0, 0}, false});
      break;
    case InstructionKind::gather_weights: uses.push_back({{BufferKind::weights, i.bucket, 0}, true}); break;
  }
  return uses;
}

bool names_group(InstructionKind kind) { return kind == InstructionKind::meet || kind == InstructionKind::reduce_gradients; }

std::string to_string(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::load_batch: return "load_batch";
    case InstructionKind::receive_activation: return "receive_activation";
    case InstructionKind::forward: return "forward";
    case InstructionKind::send_activation: return "send_activation";
    case InstructionKind::receive_gradient: return "receive_gradient";
    case InstructionKind::backward_input: return "backward_input";
    case InstructionKind::backward_weight: return "backward_weight";
    case InstructionKind::send_gradient: return "send_gradient";
    case InstructionKind::meet: return "meet";
    case InstructionKind::reduce_gradients: return "reduce_gradients";
    case InstructionKind::gradient_norm: return "gradient_norm";
    case InstructionKind::reduce_scalars: return "reduce_scalars";
    case InstructionKind::update: return "update";
    case InstructionKind::gather_weights: return "gather_weights";
  }
  throw InternalError("to_string: unknown instruction kind");
}

std::string to_string(StreamRole role) {
  switch (role) {
    case StreamRole::compute: return "compute";
    case StreamRole::copy: return "copy";
    case StreamRole::reduce: return "reduce";
    case StreamRole::send: return "send";
    case StreamRole::receive: return "receive";
  }
  throw InternalError("to_string: unknown stream role");
}

std::string to_string(const StreamSpec& stream) {
  if (stream.role == StreamRole::send) return "send to pipeline rank " + std::to_string(stream.peer);
  if (stream.role == StreamRole::receive) return "receive from pipeline rank " + std::to_string(stream.peer);
  return to_string(stream.role);
}

std::string to_string(const Instruction& instruction) {
  std::string text = to_string(instruction.kind);
  const bool of_block = instruction.segment >= 0;
  if (instruction.micro_batch >= 0) text += " micro-batch " + std::to_string(instruction.micro_batch);
  if (instruction.chunk >= 0 && !of_block) text += " chunk " + std::to_string(instruction.chunk);
  if (of_block) text += " segment " + std::to_string(instruction.segment);
  if (instruction.bucket >= 0) text += " bucket " + std::to_string(instruction.bucket);
  if (names_group(instruction.kind)) text += " over the " + to_string(instruction.group) + " group";
  return text;
}

std::string to_string(const BufferId& buffer) {
  const auto of = [&](const char* what, const char* owner) {
    return std::string(what) + " of " + owner + " " + std::to_string(buffer.index) + ", slot " + std::to_string(buffer.slot);
  };
  switch (buffer.kind) {
    case BufferKind::batch: return "batch slot " + std::to_string(buffer.slot);
    case BufferKind::input: return of("received input", "chunk");
    case BufferKind::activations: return of("activations", "segment");
    case BufferKind::output: return of("output", "segment");
    case BufferKind::output_gradient: return of("gradient of the output", "segment");
    case BufferKind::stash: return of("stash", "segment");
    case BufferKind::received_gradient: return of("received gradient", "chunk");
    case BufferKind::sent_gradient: return of("gradient to send", "chunk");
    case BufferKind::weights: return "weights of bucket " + std::to_string(buffer.index);
    case BufferKind::gradients: return "gradients in place " + std::to_string(buffer.index);
    case BufferKind::gradient_sums: return "reduced gradients of bucket " + std::to_string(buffer.index);
    case BufferKind::scalars: return "the step's scalars";
    case BufferKind::arrival: return "the number that stages meet with";
  }
  throw InternalError("to_string: unknown buffer");
}

}  // namespace plait::parallel
