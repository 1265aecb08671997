// A program: one rank's instructions for one optimizer step, as plain data.
//
// Generators write programs, the validator proves them, the interpreter runs them on streams, and plan.json shows them. An
// instruction names its stream, the buffers it reads and writes, and the instructions it waits for, so what may overlap is
// visible in the data. Instructions on one stream run in order; `waits` lists only what other streams have to finish first.
//
// A program repeats every step. A wait for an instruction that comes later in the list means its run in the previous step
// (nothing in the first step): that is how a buffer's reuse and the gather of updated weights reach across steps.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/activations.h"
#include "parallel/flat_layout.h"
#include "parallel/mesh.h"

namespace plait::parallel {

enum class InstructionKind {
  load_batch,               // a micro-batch (model::Batch) to the device
  receive_activation,       // input of a chunk, from the rank of the stage before
  exchange_forward,         // what lies before (micro_batch, segment): see Exchange
  forward,                  // of (micro_batch, segment)
  exchange_forward_scale,   // between its two parts: the scale of the last product's FP8 operand, over the tensor group
  exchange_loss,            // gathers what tensor-parallel ranks tell each other of their logits (ops/cross_entropy.h)
  loss,                     // of micro_batch, and its gradient
  send_activation,          // output of a chunk, to the rank of the stage after
  receive_gradient,         // gradient of a chunk's output, from the rank of the stage after
  exchange_recompute,       // once more what exchange_forward did that backward needs and nobody kept
  backward_input,           // of (micro_batch, segment)
  exchange_backward_scale,  // the same in backward
  exchange_backward,        // exchange_forward in reverse
  backward_weight,          // of (micro_batch, segment)
  send_gradient,            // gradient of a chunk's input, to the rank of the stage before
  meet,                     // over `group`, moving nothing: over when the last of its ranks has come
  reduce_gradients,         // of a bucket, over `group`
  gradient_norm,   // squares of what this rank counts of every bucket, into the step's scalars: `loss` adds up the others
  reduce_scalars,  // those, over the world
  update,          // clip factor, optimizer
  gather_weights,  // of a bucket, over the data group (ZeRO)
  scale_weights,   // scales of a bucket's weights as FP8 operands (ops/quantize.h)
  exchange_weight_scales,  // those, over the tensor group
  quantize_weights,        // of a bucket, with these scales
};

// What is done between segment `segment` and the one before it, on this rank's rows of the residual stream
// (model/transformer.h). Forward, in this order:
//   sum     the ranks' parts of the product of the segment before, to whoever keeps the rows, who adds bias and residual
//   norm    of the segment's input
//   gather  the norm's output, so that every rank has all rows of it
// Backward, in this order:
//   sum     the ranks' parts of the gradient of the norm's output
//   norm    its gradient, and those of its gain and bias
//   gather  the gradient of the segment's input
// Without sequence parallelism every rank keeps all rows: sums give them to everyone, and nothing is gathered. One rank by
// itself only norms.
//
// At the ends of a chunk only one side is here. A chunk's last output is summed and then sent; what is received is normed and
// gathered. A gradient that is received is gathered, one that is sent is not. An exchange behind a chunk's last segment is
// under the number of the next: `segment` is Chunk::end_segment.
struct Exchange {
  bool sum = false, norm = false, gather = false;
  bool communicates() const { return sum || gather; }
  // All ranks of the group have come to it before anything is gathered, so that where it goes is free on all of them.
  bool gathers_into_free() const { return sum && gather; }
  friend auto operator<=>(const Exchange&, const Exchange&) = default;
};

// What a stream is for. All that a tensor group does together is on its exchange stream (without overlap, on the compute
// stream), in one order; one rank by itself has none, and norms on its compute stream. Each pair of pipeline ranks has a stream
// in each direction, so that one waiting message holds up no other; messages on one stream are in the same order on both ranks.
enum class StreamRole { compute, copy, exchange, reduce, send, receive };

struct StreamSpec {
  StreamRole role = StreamRole::compute;
  int peer = -1;  // send and receive: pipeline rank at the other end
  friend bool operator==(const StreamSpec&, const StreamSpec&) = default;
};

// Segments [first_segment, end_segment) of the model: one stage, computed by one rank, and the slots of its buffers.
//   activations  what each segment and its norm keep from forward to backward, per micro-batch in flight; `slot`
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

// Of Instruction::beside: more makes no difference to anybody.
inline constexpr int most_beside = 16;

struct Instruction {
  InstructionKind kind = InstructionKind::forward;
  model::PassPart part = model::PassPart::whole;  // of forward and backward_input
  int stream = 0;                                 // index into Program::streams
  int micro_batch = -1, chunk = -1, segment = -1, bucket = -1;
  Group group = groups::replicas;       // of a collective
  Exchange exchange = {};               // of exchange_forward, exchange_recompute and exchange_backward
  int beside = 0;                       // of an exchange: quarters of blocks computed meanwhile, up to most_beside
  int lane = -1;                        // see Program::lanes
  int batch_slot = -1;                  // of the batch, where it is needed
  int slot = -1;                        // activations of (segment, micro_batch); send_activation: whose `output` it sends
  int input_slot = -1;                  // where the input of the chunk's first segment is: see input_buffer()
  int stash = -1;                       // gradients of (segment, micro_batch)
  int gradient_in = -1;                 // where the gradient of the segment's output arrives: see output_gradient_buffer()
  int gradient_out = -1;                // where the gradient of its input goes: see input_gradient_buffer()
  int peer_chunk = -1, peer_slot = -1;  // of a send: the input or received gradient of the receiver that it fills
  bool accumulate = false;  // adds to weight gradients (reductions under ZeRO-2: to the sums) instead of overwriting them
  bool accumulate_tokens = false;  // the same for the embedding's table, to which a tied head on this rank has added first
  bool recomputed = false;         // backward: the norm's output was not kept, and exchange_recompute has written it again
  std::vector<int> waits = {};
  friend auto operator<=>(const Instruction&, const Instruction&) = default;
};

struct Program {
  std::vector<StreamSpec> streams;
  std::vector<Chunk> chunks;
  std::vector<Instruction> instructions;
  std::vector<model::SegmentKind> segments;  // of the whole model
  bool several = false;                      // each segment is shared by several tensor-parallel ranks
  bool fp8 = false;                          // products of attention and MLP read quantized weights
  int batch_slots = 1;
  // Sets of the buffers that live between a segment and the exchange beside it only (BufferKind::product, statistics,
  // norm_gradient). Passes take turns in a lane; passes that are under way at once each need their own.
  int lanes = 1;
  const Instruction& at(int index) const { return instructions[static_cast<std::size_t>(index)]; }
  const StreamSpec& stream_of(const Instruction& i) const { return streams[static_cast<std::size_t>(i.stream)]; }
  const Chunk& chunk_of(const Instruction& i) const { return chunks[static_cast<std::size_t>(i.chunk)]; }
  model::SegmentKind kind(int segment) const { return segments[static_cast<std::size_t>(segment)]; }
  friend bool operator==(const Program&, const Program&) = default;
};

// Memory an instruction touches, apart from scratch that only the compute stream uses within one instruction.
enum class BufferKind {
  batch,              // [slot]
  input,              // received input of a chunk: [chunk][slot]
  norm,               // [segment][slot]: what the norm in front of a segment writes
  norm_again,         // [segment][stash]: the same, recomputed
  activations,        // [segment][slot], without `output`
  product,            // [lane]: a rank's part of a segment's output, before it is summed
  output,             // [segment][slot]
  statistics,         // [lane]: of logits, of all ranks
  norm_gradient,      // [lane]: of a norm's output; one rank's part of it, before it is summed
  output_gradient,    // of a segment's output, in its stash: [segment][slot]
  stash,              // the rest of a segment's stash: [segment][slot]
  received_gradient,  // [chunk][slot]
  sent_gradient,      // [chunk][slot]
  weights,            // [bucket]
  weight_scales,      // [bucket]: of those of attention and MLP as FP8 operands
  quantized_weights,  // [bucket]: those operands
  gradients,          // whole gradients of a bucket, as backward_weight writes them: [Bucket::place]
  norm_gradients,     // those of the norms in it, as exchange_backward writes them
  gradient_sums,      // what reductions make of them: in the same memory, or under ZeRO-2 in shards elsewhere: [bucket]
  scalars,            // StateTensor::scalars, on their way to the update
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

// The buffers of the residual stream at a segment of an instruction's chunk: received from another rank, or of the neighbouring
// segment. input_gradient_buffer() is of i.segment.
BufferId input_buffer(const Program& program, const Instruction& i, int segment);
BufferId output_gradient_buffer(const Program& program, const Instruction& i, int segment);
BufferId input_gradient_buffer(const Program& program, const Instruction& i);
// What the norm of i.segment has written.
BufferId norm_buffer(const Instruction& i);

// All buffers that an instruction reads or writes. `buckets`: those of the rank's flat layout.
std::vector<BufferUse> buffer_uses(const Program& program, const Instruction& i, const std::vector<Bucket>& buckets);

// Which buckets each segment is in, ascending, looked up once for all instructions of a program: of a deep model there are
// thousands of both. Keeps a reference to its argument.
class BucketsOfSegments {
 public:
  explicit BucketsOfSegments(const std::vector<Bucket>& buckets);
  const std::vector<Bucket>& all() const { return all_; }
  std::span<const int> of(int segment) const;

 private:
  const std::vector<Bucket>& all_;
  std::vector<std::vector<int>> of_;
};
std::vector<BufferUse> buffer_uses(const Program& program, const Instruction& i, const BucketsOfSegments& buckets);

bool is_exchange(InstructionKind kind);
bool computes_segment(InstructionKind kind);      // forward and both parts of backward
bool communicates_in_pass(const Instruction& i);  // an exchange of whatever kind between computations of a pass
bool is_scale_exchange(InstructionKind kind);

// Whether instructions of this kind may be over one group or another, so that `group` tells two of them apart.
bool names_group(InstructionKind kind);

std::string to_string(InstructionKind kind);
std::string kind_text(const Instruction& i);  // the same; "norm_forward" of an exchange that communicates nothing
std::string to_string(StreamRole role);
std::string to_string(const StreamSpec& stream);        // "send to pipeline rank 2"
std::string to_string(const Instruction& instruction);  // "backward_input micro-batch 0 segment 3"

}  // namespace plait::parallel
