#include "parallel/program.h"

#include "core/error.h"

namespace plait::parallel {

std::string to_string(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::load_batch: return "load_batch";
    case InstructionKind::forward: return "forward";
    case InstructionKind::backward_input: return "backward_input";
    case InstructionKind::backward_weight: return "backward_weight";
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
  }
  throw InternalError("to_string: unknown stream role");
}

std::string to_string(const Instruction& instruction) {
  std::string text = to_string(instruction.kind);
  if (instruction.micro_batch >= 0) text += " micro-batch " + std::to_string(instruction.micro_batch);
  if (instruction.block >= 0) text += " block " + std::to_string(instruction.block);
  if (instruction.bucket >= 0) text += " bucket " + std::to_string(instruction.bucket);
  return text;
}

Program data_parallel_program(const DataParallelSpec& spec) {
  require(spec.blocks >= 2 && spec.micro_batches >= 1, "data_parallel_program: at least two blocks and one micro-batch");
  Program program;
  program.batch_slots = 2;
  std::vector<Instruction>& list = program.instructions;
  const auto at = [&](int index) -> Instruction& { return list[static_cast<std::size_t>(index)]; };
  const auto add = [&](Instruction instruction) {
    if (!spec.overlap) instruction.stream = StreamRole::compute;
    list.push_back(std::move(instruction));
    return static_cast<int>(list.size()) - 1;
  };

  std::vector<int> first_forward;                     // by block: its first reader of weights in the step
  std::vector<int> slot_load(2, -1), slot_done(2, -1);  // by batch slot: last load, last reader
  std::vector<int> first_load(2, -1);
  std::vector<int> reductions(spec.buckets.size(), -1);

  for (int mb = 0; mb < spec.micro_batches; ++mb) {
    const int slot = mb % program.batch_slots;
    const bool last = mb == spec.micro_batches - 1;
    const auto slot_index = static_cast<std::size_t>(slot);
    const int load = add({.kind = InstructionKind::load_batch, .stream = StreamRole::copy, .micro_batch = mb, .batch_slot = slot});
    if (slot_done[slot_index] >= 0) at(load).waits.push_back(slot_done[slot_index]);
    if (first_load[slot_index] < 0) first_load[slot_index] = load;
    slot_load[slot_index] = load;

    for (int block = 0; block < spec.blocks; ++block) {
      const int forward = add({.kind = InstructionKind::forward, .micro_batch = mb, .block = block, .batch_slot = slot,
                               .activation_slot = 0, .accumulate = mb > 0});
      if (block == 0) at(forward).waits.push_back(load);
      if (mb == 0) first_forward.push_back(forward);
    }

    // The residual stream's gradient alternates between two slots: a block reads the one its successor wrote.
    for (int block = spec.blocks - 1; block >= 0; --block) {
      const bool head = block == spec.blocks - 1;
      const int in = head ? -1 : (block + 1) % 2;
      const int out = block == 0 ? -1 : block % 2;
      for (const InstructionKind kind : {InstructionKind::backward_input, InstructionKind::backward_weight}) {
        if (block == 0 && kind == InstructionKind::backward_input) continue;  // nothing is before the embedding
        slot_done[slot_index] = add({.kind = kind, .micro_batch = mb, .block = block, .batch_slot = slot, .activation_slot = 0,
                                     .gradient_in = in, .gradient_out = out, .accumulate = mb > 0});
      }
      if (!last || !spec.overlap) continue;
      for (std::size_t b = 0; b < spec.buckets.size(); ++b) {
        if (spec.buckets[b].last_block != block) continue;
        reductions[b] = add({.kind = InstructionKind::reduce_gradients, .stream = StreamRole::reduce,
                             .bucket = static_cast<int>(b), .waits = {slot_done[slot_index]}});
      }
    }
  }
  // The first load into a slot waits for the slot's last reader in the previous step.
  for (std::size_t slot = 0; slot < first_load.size(); ++slot) {
    if (first_load[slot] >= 0) at(first_load[slot]).waits.push_back(slot_done[slot]);
  }
  if (!spec.overlap) {
    for (std::size_t b = 0; b < spec.buckets.size(); ++b) {
      reductions[b] = add({.kind = InstructionKind::reduce_gradients, .stream = StreamRole::reduce, .bucket = static_cast<int>(b)});
    }
  }

  const int norm = add({.kind = InstructionKind::gradient_norm, .waits = reductions});
  const int scalars = add({.kind = InstructionKind::reduce_scalars, .stream = StreamRole::reduce, .waits = {norm}});
  const int update = add({.kind = InstructionKind::update, .waits = {scalars}});

  if (spec.sharded) {
    // In the order in which the next forward needs them: the embedding's bucket is the last of the flat buffer.
    for (std::size_t b = spec.buckets.size(); b-- > 0;) {
      const int gather = add({.kind = InstructionKind::gather_weights, .stream = StreamRole::reduce,
                              .bucket = static_cast<int>(b), .waits = {update}});
      for (int block = spec.buckets[b].last_block; block <= spec.buckets[b].first_block; ++block) {
        at(first_forward[static_cast<std::size_t>(block)]).waits.push_back(gather);
      }
    }
    // A tied head reads the embedding's weights as well, but its forward comes after the embedding's on the same stream.
  }
  // Order within one stream needs no waits.
  for (Instruction& instruction : list) {
    std::erase_if(instruction.waits, [&](int w) { return w < 0 || at(w).stream == instruction.stream; });
  }
  return program;
}

Program evaluation_program(int blocks) {
  Program program;
  std::vector<Instruction>& list = program.instructions;
  list.push_back({.kind = InstructionKind::load_batch, .stream = StreamRole::copy, .micro_batch = 0, .batch_slot = 0});
  for (int block = 0; block < blocks; ++block) {
    list.push_back({.kind = InstructionKind::forward, .micro_batch = 0, .block = block, .batch_slot = 0, .activation_slot = 0});
  }
  list[1].waits.push_back(0);
  list[0].waits.push_back(blocks);  // the head's forward of the previous round
  return program;
}

}  // namespace plait::parallel
