// A program: one rank's instructions for one optimizer step, as plain data.
//
// Generators write programs, the validator proves them, the interpreter runs them on streams, and plan.json shows them. An
// instruction names its stream, the buffers it reads and writes, and the instructions it waits for, so what may overlap is
// visible in the data. Instructions on one stream run in order; `waits` lists only what other streams have to finish first.
//
// A program repeats every step. A wait for an instruction that comes later in the list means its run in the previous step
// (nothing in the first step): that is how a buffer's reuse and the gather of updated weights reach across steps.
#pragma once

#include <string>
#include <vector>

#include "parallel/flat_layout.h"
#include "parallel/mesh.h"

namespace plait::parallel {

enum class InstructionKind {
  load_batch,          // tokens and targets of a micro-batch to the device
  receive_activation,  // input of a chunk, from the rank of the stage before
  forward,             // of (micro_batch, segment)
  send_activation,     // output of a chunk, to the rank of the stage after
  receive_gradient,    // gradient of a chunk's output, from the rank of the stage after
  backward_input,      // of (micro_batch, segment)
  backward_weight,     // of (micro_batch, segment)
  send_gradient,       // gradient of a chunk's input, to the rank of the stage before
  meet,                // over `group`, moving nothing: over when the last of its ranks has come
  reduce_gradients,    // of a bucket, over `group`
  gradient_norm,       // squares of what this rank counts of every bucket, and the losses, into the step's scalars
  reduce_scalars,      // those, over the world
  update,              // clip factor, optimizer
  gather_weights,      // of a bucket, over the data group (ZeRO)
};

// What a stream is for. Each pair of pipeline ranks has a stream in each direction, so that one waiting message holds up no
// other; messages on one stream are in the same order on both ranks.
enum class StreamRole { compute, copy, reduce, send, receive };

struct StreamSpec {
  StreamRole role = StreamRole::compute;
  int peer = -1;  // send and receive: pipeline rank at the other end
  friend bool operator==(const StreamSpec&, const StreamSpec&) = default;
};

// Blocks [first_segment, end_segment) of the model: one stage, computed by one rank, and the slots of its buffers.
//   activations  what each segment keeps from forward to backward, per micro-batch in flight; `slot`
//   inputs       received from the stage before; absent (0) where that is on the same rank, or is none
//   stashes      gradients from backward_input to backward_weight; `stash`
//   gradients_in, gradients_out   received from the stage after, sent to the stage before
struct Chunk {
  int stage = 0;
  int first_segment = 0, end_segment = 0;
  int previous_rank = -1, next_rank = -1;  // pipeline ranks of the neighbouring stages; -1: none, or this rank
  int activation_slots = 1, input_slots = 0, stash_slots = 1, gradient_in_slots = 0, gradient_out_slots = 0;
  int last_segment() const { return end_segment - 1; }
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

struct Instruction {
  InstructionKind kind = InstructionKind::forward;
  int stream = 0;  // index into Program::streams
  int micro_batch = -1, chunk = -1, segment = -1, bucket = -1;
  Group group = Group::data;            // of a collective
  int batch_slot = -1;                  // tokens and targets
  int slot = -1;                        // activations of (segment, micro_batch); send_activation: whose `output` it sends
  int input_slot = -1;                  // where the segment's input is: see input_buffer()
  int stash = -1;                       // gradients of (segment, micro_batch)
  int gradient_in = -1;                 // where the gradient of the segment's output arrives: see output_gradient_buffer()
  int gradient_out = -1;                // where the gradient of its input goes: see input_gradient_buffer()
  int peer_chunk = -1, peer_slot = -1;  // of a send: the input or received gradient of the receiver that it fills
  bool accumulate = false;  // adds to weight gradients (reductions under ZeRO-2: to the sums) instead of overwriting them
  bool accumulate_tokens = false;  // the same for the embedding's table, to which a tied head on this rank has added first
  std::vector<int> waits = {};
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct Program {
  std::vector<StreamSpec> streams;
  std::vector<Chunk> chunks;
  std::vector<Instruction> instructions;
  int batch_slots = 1;
  const Instruction& at(int index) const { return instructions[static_cast<std::size_t>(index)]; }
  const StreamSpec& stream_of(const Instruction& i) const { return streams[static_cast<std::size_t>(i.stream)]; }
  const Chunk& chunk_of(const Instruction& i) const { return chunks[static_cast<std::size_t>(i.chunk)]; }
  friend bool operator==(const Program&, const Program&) = default;
};

// Memory an instruction touches, apart from scratch that only the compute stream uses within one instruction.
enum class BufferKind {
  batch,              // [slot]
  input,              // received input of a chunk: [chunk][slot]
  activations,        // [segment][slot], without `output`
  output,             // [segment][slot]
  output_gradient,    // of a segment's output, in its stash: [segment][slot]
  stash,              // the rest of a segment's stash: [segment][slot]
  received_gradient,  // [chunk][slot]
  sent_gradient,      // [chunk][slot]
  weights,            // [bucket]
  gradients,          // whole gradients of a bucket, as backward writes them: [Bucket::place]
  gradient_sums,      // what reductions make of them: in the same memory, or under ZeRO-2 in shards elsewhere: [bucket]
  scalars,            // sum of the gradients' squares and of the losses, on their way to the update
  arrival,            // the number that `meet` reduces; its value means nothing
};

struct BufferId {
  BufferKind kind = BufferKind::batch;
  int index = 0, slot = 0;
  friend auto operator<=>(const BufferId&, const BufferId&) = default;
};
std::string to_string(const BufferId& buffer);  // "activations of segment 3, slot 1"

struct BufferUse {
  BufferId buffer;
  bool writes = false;  // else reads; a use that does both is listed as a write
};

// The buffers of the residual stream around a segment's instruction: received from another rank, or of the neighbouring
// segment.
BufferId input_buffer(const Program& program, const Instruction& i);
BufferId output_gradient_buffer(const Program& program, const Instruction& i);
BufferId input_gradient_buffer(const Program& program, const Instruction& i);

// All buffers that an instruction reads or writes. `buckets`: those of the rank's flat layout.
std::vector<BufferUse> buffer_uses(const Program& program, const Instruction& i, const std::vector<Bucket>& buckets);

// Whether instructions of this kind may be over one group or another, so that `group` tells two of them apart.
bool names_group(InstructionKind kind);

std::string to_string(InstructionKind kind);
std::string to_string(StreamRole role);
std::string to_string(const StreamSpec& stream);        // "send to pipeline rank 2"
std::string to_string(const Instruction& instruction);  // "backward_input micro-batch 0 segment 3"

}  // namespace plait::parallel
