// A program: one rank's instructions for one optimizer step, as plain data.
//
// Generators write programs, the validator proves them, the interpreter runs them on streams, and plan.json shows them. An
// instruction names its stream, the buffers it reads and writes, and the instructions it waits for, so the data shows what may
// overlap. Instructions on one stream run in order; `waits` lists only what other streams have to finish first.
//
// A program repeats every step. A wait for an instruction that comes later in the list means its run in the previous step
// (nothing in the first step): that is how a buffer's reuse and the gather of updated weights reach across steps.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/collective.h"
#include "model/segments.h"
#include "parallel/flat_layout.h"
#include "parallel/mesh.h"

namespace plait::parallel {

enum class InstructionKind {
  load_batch,          // a micro-batch (model::Batch) to the device
  receive_activation,  // input of a chunk, from the rank of the stage before
  add_residual,        // between segment `segment` and the one before it, as are the next two (model::Computation)
  norm,
  round_norm,
  forward,           // part `part` of (micro_batch, segment)
  loss,              // the loss of micro_batch, and its gradient
  send_activation,   // output of a chunk, to the rank of the stage after
  receive_gradient,  // gradient of a chunk's output, from the rank of the stage after
  backward_input,    // part `part` of (micro_batch, segment)
  norm_backward,
  round_gradient,
  backward_weight,   // the weight part of (micro_batch, segment)
  send_gradient,     // gradient of a chunk's input, to the rank of the stage before
  gradient_norm,     // squares of the gradients that this rank counts, into the step's scalars: `loss` adds up the others
  update,            // clip factor, optimizer
  scale_weights,     // scales of a bucket's weights as FP8 operands (ops/quantize.h)
  quantize_weights,  // a bucket's weights as FP8 operands, with these scales
  collective,        // see Collective
};

InstructionKind kind_of(model::Computation computation);

// There is a stream for each purpose of communication, and one for each direction of each pair of pipeline ranks, so that a
// waiting message holds up no other. Collectives and messages on one stream are in the same order on all of their ranks.
// Without overlap, collectives are on the compute stream.
//   exchange  collectives of activations, with what is computed between two of them
//   reduce    collectives of gradients, weights and scalars
enum class StreamRole { compute, copy, exchange, reduce, send, receive };
StreamRole stream_role(Purpose purpose);

struct StreamSpec {
  StreamRole role = StreamRole::compute;
  int peer = -1;  // send and receive: pipeline rank at the other end
  friend bool operator==(const StreamSpec&, const StreamSpec&) = default;
};

// Segments [first_segment, end_segment) of the model: one stage, computed by one rank, and the numbers of slots of its buffers.
//   activations  kept by each segment and its norm from forward to backward, per micro-batch in flight; `slot`
//   inputs       received from the stage before; none (0) if that is on the same rank or does not exist
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

// The memory that instructions touch, apart from scratch that only the compute stream uses within one instruction. A new kind
// needs a row in row_of() too.
enum class BufferKind {
  batch,              // [slot]
  input,              // received input of a chunk: [chunk][slot]
  norm,               // [segment][slot]: output of the norm in front of a segment
  norm_again,         // [segment][stash]: the same, recomputed
  activations,        // [segment][slot], without `output`
  product,            // [lane]: a rank's part of a segment's output, before it is summed
  output,             // [segment][slot]
  statistics,         // [lane]: those of the logits of all ranks
  norm_gradient,      // [lane]: gradient of a norm's output; one rank's part of it, before it is summed
  output_gradient,    // gradient of a segment's output, in its stash: [segment][slot]
  stash,              // the rest of a segment's stash: [segment][slot]
  received_gradient,  // [chunk][slot]
  sent_gradient,      // [chunk][slot]
  weights,            // [bucket]
  weight_scales,      // [bucket]: scales of its weights of attention and MLP as FP8 operands
  quantized_weights,  // [bucket]: these operands
  gradients,          // whole gradients of a bucket, as backward_weight writes them: [Bucket::place]
  norm_gradients,     // those of a bucket's norms, as norm_backward writes them: [Bucket::place]
  gradient_sums,      // results of reductions, in the same memory or, under ZeRO-2, in shards elsewhere: [bucket]
  scalars,            // StateTensor::scalars, on their way to the update
  arrival,            // the number that a barrier reduces; its value means nothing
};

struct BufferId {
  BufferKind kind = BufferKind::batch;
  int index = 0, slot = 0;
  friend auto operator<=>(const BufferId&, const BufferId&) = default;
};
std::string to_string(const BufferId& buffer);  // "activations of segment 3, slot 1"

// The owners of buffers, which BufferId::index counts. A batch slot, a chunk, a segment or a lane owns what belongs to one
// micro-batch; the others own what a step adds up or updates.
enum class BufferOwner { slot, chunk, segment, lane, bucket, place, rank };

struct BufferRow {
  BufferKind kind;
  std::string_view what;
  BufferOwner owner;
  int Chunk::* slots = nullptr;  // for a chunk or segment: the member that holds their number
};
const BufferRow& row_of(BufferKind kind);
constexpr bool is_per_micro_batch(BufferOwner owner) { return owner <= BufferOwner::lane; }

// An operation that the ranks of `group` do together. The whole tensor has `elements` elements on every rank. In reduce_scatter
// and all_gather, each rank's share lies in its place there. If source and destination differ, the source is whole and the
// destination holds this rank's share (ZeRO).
struct Collective {
  Operation operation = Operation::sum;
  Group group = groups::world;
  Purpose purpose = Purpose::scalars;
  BufferId source, destination;
  std::optional<model::PassTensor> tensor = std::nullopt;  // in a pass: the tensor of these buffers
  std::int64_t elements = 0;
  DType dtype = DType::f32;
  bool into_free = false;  // all ranks are known to be ready to be written to (model::PassCollective)
  friend auto operator<=>(const Collective&, const Collective&) = default;
};

// Upper bound of Instruction::beside; larger values make no difference.
inline constexpr int most_beside = 16;

struct Instruction {
  InstructionKind kind = InstructionKind::forward;
  int part = 0;    // in forward and backward_input: index below parts_of()
  int stream = 0;  // index into Program::streams
  int micro_batch = -1, chunk = -1, segment = -1, bucket = -1;
  Collective collective = {};  // for a collective
  bool adds_residual = false;  // a norm that does first what add_residual does
  int beside = 0;              // a collective in a pass: quarters of blocks computed meanwhile, up to most_beside
  int lane = -1;               // see Program::lanes
  int batch_slot = -1;         // slot of the batch, if it is needed
  int slot = -1;               // activations of (segment, micro_batch); send_activation: those whose `output` it sends
  int input_slot = -1;         // slot of the input of the chunk's first segment: see input_buffer()
  int stash = -1;              // gradients of (segment, micro_batch)
  int gradient_in = -1;        // slot in which the gradient of the segment's output arrives: see output_gradient_buffer()
  int gradient_out = -1;       // slot to which the gradient of its input goes: see input_gradient_buffer()
  int peer_chunk = -1, peer_slot = -1;  // a send: the input or received gradient of the receiver that it fills
  bool accumulate = false;  // adds to weight gradients (reductions under ZeRO-2: to the sums) instead of overwriting them
  bool accumulate_tokens = false;  // the same for the embedding's table, to which a tied head on this rank has added first
  bool recomputed = false;         // backward: the norm's output was not kept; it is computed and gathered again
  std::vector<int> waits = {};
  friend auto operator<=>(const Instruction&, const Instruction&) = default;
};

struct Program {
  std::vector<StreamSpec> streams;
  std::vector<Chunk> chunks;
  std::vector<Instruction> instructions;
  std::vector<model::Segment> segments;  // of the whole model
  int batch_slots = 1;
  // Sets of the buffers that live only between a segment and the collective behind it (BufferKind::product, statistics,
  // norm_gradient). Passes take turns in a lane; passes that are under way at once each need their own.
  int lanes = 1;
  const Instruction& at(int index) const { return instructions[static_cast<std::size_t>(index)]; }
  const StreamSpec& stream_of(const Instruction& i) const { return streams[static_cast<std::size_t>(i.stream)]; }
  const Chunk& chunk_of(const Instruction& i) const { return chunks[static_cast<std::size_t>(i.chunk)]; }
  const model::Segment& segment(int index) const { return segments[static_cast<std::size_t>(index)]; }
  model::SegmentKind kind(int index) const { return segment(index).kind; }
  friend bool operator==(const Program&, const Program&) = default;
};

// A group and the stream of the purpose for which its ranks communicate. Collectives of one group for two purposes may be under
// way at once, and have a communicator each. (Without overlap all are on the compute stream.)
struct GroupStream {
  Group group;
  StreamRole role = StreamRole::reduce;
  friend auto operator<=>(const GroupStream&, const GroupStream&) = default;
};

// The groups whose collectives may go by links: tensor-parallel ranks for activations, and replicas for gradients and weights.
inline constexpr GroupStream exchange_group{groups::tensor, StreamRole::exchange};
inline constexpr GroupStream reduction_group{groups::replicas, StreamRole::reduce};
std::string to_string(const GroupStream& group);  // "tensor"; "tensor reduce" for the group that has an exchange stream too

// The number of slots that a program declares for the buffers of this kind and index.
int slots_of(const Program& program, const BufferId& buffer);

struct BufferUse {
  BufferId buffer;
  bool writes = false;  // else reads; a use that does both is listed as a write
  bool begins = false;  // a write with which the value of another micro-batch begins
};

// The buffers of the residual stream at a segment of an instruction's chunk: received from another rank, or the neighbouring
// segment's. input_gradient_buffer() is for i.segment.
BufferId input_buffer(const Program& program, const Instruction& i, int segment);
BufferId output_gradient_buffer(const Program& program, const Instruction& i, int segment);
BufferId input_gradient_buffer(const Program& program, const Instruction& i);
// The output of the norm of i.segment.
BufferId norm_buffer(const Instruction& i);

// The buffer in which a collective of a pass finds its tensor; `i` says which pass and segment.
BufferId pass_buffer(const Program& program, const Instruction& i, model::PassTensor tensor);

// All buffers that an instruction reads or writes. `buckets`: those of the rank's flat layout.
std::vector<BufferUse> buffer_uses(const Program& program, const Instruction& i, const std::vector<Bucket>& buckets);

// The buckets that each segment is in, ascending, looked up once for all instructions of a program: a deep model has thousands
// of both. Keeps a reference to its argument.
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

bool computes_segment(InstructionKind kind);  // forward and both parts of backward
// The number of instructions of a kind that make up the pass of one micro-batch through the segment. For forward and
// backward_input, that is one more than the collectives in its middle.
int parts_of(const model::Segment& segment, InstructionKind kind);
bool is_collective(const Instruction& i);
bool is_barrier(const Instruction& i);
bool communicates_in_pass(const Instruction& i);  // a collective of activations, between computations of a pass
// A collective between two segments, over rows of the residual stream or their scale; the others move a few bytes.
bool moves_rows(const Instruction& i);
// True for instructions of backward. Those of forward have neither a stash nor a place for gradients.
bool is_in_backward(const Instruction& i);

// The group and stream of a collective. Nothing for an instruction that a rank runs alone, or with a peer.
std::optional<GroupStream> collective_group(const Instruction& instruction);

std::string to_string(InstructionKind kind);
std::string to_string(StreamRole role);
std::string to_string(const StreamSpec& stream);        // "send to pipeline rank 2"
std::string to_string(const Collective& collective);    // "all_gather of norm", "sum of gradients over the data group"
std::string kind_text(const Instruction& i);            // "backward_input", "all_gather of norm", "recomputed norm"
std::string to_string(const Instruction& instruction);  // "backward_input micro-batch 0 segment 3"

}  // namespace plait::parallel
