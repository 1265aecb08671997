// A program: one rank's instructions for one optimizer step, as plain data.
//
// Generators write programs, the interpreter runs them on streams, and plan.json shows them. An instruction names its stream
// and the instructions it waits for, so what may overlap is visible in the data. Instructions on one stream run in order;
// `waits` lists only what other streams have to finish first.
//
// A program repeats every step. A wait for an instruction that comes later in the list means its run in the previous step
// (nothing in the first step): that is how a buffer's reuse and the gather of updated weights reach across steps.
#pragma once

#include <string>
#include <vector>

#include "parallel/flat_layout.h"

namespace plait::parallel {

enum class InstructionKind {
  load_batch,        // tokens and targets of a micro-batch to the device
  forward,           // of (micro_batch, block)
  backward_input,    // of (micro_batch, block)
  backward_weight,   // of (micro_batch, block)
  reduce_gradients,  // of a bucket, over the data axis: all-reduce, or reduce-scatter under ZeRO-1
  gradient_norm,     // squares of this rank's shard of every bucket, and the micro-batches' losses, into the step's scalars
  reduce_scalars,    // those, over the data axis
  update,            // clip factor, optimizer
  gather_weights,    // of a bucket, over the data axis (ZeRO-1)
};

enum class StreamRole { compute, copy, reduce };
inline constexpr int stream_roles = 3;

struct Instruction {
  InstructionKind kind = InstructionKind::forward;
  StreamRole stream = StreamRole::compute;
  int micro_batch = -1, block = -1, bucket = -1;
  int batch_slot = -1;         // tokens and targets
  int activation_slot = -1;    // per block
  int gradient_in = -1;        // slot of the residual stream's gradient this instruction reads (output_gradient)
  int gradient_out = -1;       // and writes (input_gradient)
  bool accumulate = false;     // adds to weight gradients instead of overwriting them
  std::vector<int> waits = {};
};

struct Program {
  std::vector<Instruction> instructions;
  int batch_slots = 1;
  int activation_slots = 1;
  int gradient_slots = 2;
};

std::string to_string(InstructionKind kind);
std::string to_string(StreamRole role);
std::string to_string(const Instruction& instruction);  // "backward_input micro-batch 0 block 3"

struct DataParallelSpec {
  int blocks = 0;
  int micro_batches = 1;
  std::vector<Bucket> buckets;
  bool sharded = false;  // ZeRO-1
  bool overlap = true;   // false: everything in one stream, for comparison
};

// All blocks on every rank, gradient accumulation over micro-batches. A bucket's reduction starts on the reduce stream when
// the last micro-batch has written its last gradient, and runs beside the rest of backward.
Program data_parallel_program(const DataParallelSpec& spec);

// Forward only, for evaluation: load_batch and forward of one micro-batch, in batch slot 0 and activation slot 0.
Program evaluation_program(int blocks);

}  // namespace plait::parallel
