#include "parallel/program/program.h"

#include <algorithm>

#include "core/error.h"

namespace plait::parallel {
namespace {

// Some buckets and, if they were looked up, those of each segment.
struct BucketList {
  const std::vector<Bucket>& all;
  const BucketsOfSegments* of_segments = nullptr;
};

// The uses of one instruction, as they are found.
class UseList {
 public:
  UseList(const Program& program, const Instruction& i, const BucketList& buckets) : p_(program), i_(i), buckets_(buckets) {}

  std::vector<BufferUse> take() { return std::move(uses_); }

  void reads(const BufferId& buffer) { uses_.push_back({buffer}); }
  void updates(const BufferId& buffer) { uses_.push_back({.buffer = buffer, .writes = true}); }
  void begins(const BufferId& buffer) { uses_.push_back({.buffer = buffer, .writes = true, .begins = true}); }

  void of_segment();
  void of_norm();
  void of_norm_backward();
  void of_collective();
  template <typename Use>
  void each_bucket(const Use& use) const {
    for (int b = 0; b < std::ssize(buckets_.all); ++b) use(b);
  }

 private:
  const Bucket& bucket(int b) const { return buckets_.all[static_cast<std::size_t>(b)]; }
  template <typename Use>
  void each_bucket_of(int segment, const Use& use) const {
    if (buckets_.of_segments) {
      for (const int b : buckets_.of_segments->of(segment)) use(b);
      return;
    }
    each_bucket([&](int b) {
      if (std::ranges::find(bucket(b).segments, segment) != bucket(b).segments.end()) use(b);
    });
  }
  void reads_weights(int segment, BufferKind kind = BufferKind::weights) {
    each_bucket_of(segment, [&](int b) {
      if (kind == BufferKind::weights || bucket(b).products) reads({kind, b, 0});
    });
  }
  void adds_gradients(BufferKind kind) {
    each_bucket_of(i_.segment, [&](int b) { updates({kind, bucket(b).place, 0}); });
  }

  const Program& p_;
  const Instruction& i_;
  const BucketList& buckets_;
  std::vector<BufferUse> uses_;
};

void UseList::of_segment() {
  using enum BufferKind;
  const model::Segment& segment = p_.segment(i_.segment);
  const model::SegmentKind kind = segment.kind;
  const bool is_forward = i_.kind == InstructionKind::forward, is_input = i_.kind == InstructionKind::backward_input;
  const bool is_weight = i_.kind == InstructionKind::backward_weight;
  const bool is_first = i_.part == 0, is_last = i_.part + 1 == parts_of(segment, i_.kind);
  if (i_.batch_slot >= 0) reads({batch, 0, i_.batch_slot});
  if (has_norm(kind) && is_first) reads(norm_buffer(i_));
  const BufferId kept{activations, i_.segment, i_.slot};
  if (is_forward && is_first) {
    begins(kept);
  } else if (is_forward || is_first) {
    reads(kept);
  }
  if (is_forward && is_last) {
    if (!has_output(kind)) {
      if (segment.partial) begins({statistics, i_.lane, 0});
    } else if (segment.partial) {
      begins({product, i_.lane, 0});
    } else {
      begins({output, i_.segment, i_.slot});
      if (has_norm(kind)) reads(input_buffer(p_, i_, i_.segment));
    }
  }
  if (!is_forward) {
    const BufferId left{stash, i_.segment, i_.stash};
    if (has_norm(kind) && is_input && is_first) {
      begins(left);
    } else if (has_norm(kind)) {
      reads(left);
    }
    if (has_output(kind) && is_first) reads(output_gradient_buffer(p_, i_, i_.segment));
  }
  if (is_input && is_last) begins({norm_gradient, i_.lane, 0});
  if (is_weight) return adds_gradients(gradients);
  reads_weights(i_.segment);
  if (segment.quantized) reads_weights(i_.segment, quantized_weights);
}

// The uses of add_residual and norm, between a segment and the one before it.
void UseList::of_norm() {
  const bool is_norm = i_.kind == InstructionKind::norm, adds = !is_norm || i_.adds_residual;
  if (adds) {
    reads({BufferKind::product, i_.lane, 0});
    if (has_norm(p_.kind(i_.segment - 1))) reads(input_buffer(p_, i_, i_.segment - 1));
    begins({BufferKind::output, i_.segment - 1, i_.slot});
    reads_weights(i_.segment - 1);
  }
  if (!is_norm) return;
  if (!adds) reads(input_buffer(p_, i_, i_.segment));  // else its input is the sum that it has just written
  begins(norm_buffer(i_));
  reads_weights(i_.segment);
}

void UseList::of_norm_backward() {
  reads({BufferKind::norm_gradient, i_.lane, 0});
  reads(input_buffer(p_, i_, i_.segment));
  reads(norm_buffer(i_));
  if (has_output(p_.kind(i_.segment))) reads(output_gradient_buffer(p_, i_, i_.segment));
  begins(input_gradient_buffer(p_, i_));
  reads_weights(i_.segment);
  adds_gradients(BufferKind::norm_gradients);
}

// Unless they are sharded, the sums are in the memory of the whole gradients, so both are used together.
void UseList::of_collective() {
  const Collective& c = i_.collective;
  if (c.source != c.destination) updates(c.source);
  updates(c.destination);
  if (c.destination.kind != BufferKind::gradient_sums) return;
  const int place = bucket(i_.bucket).place;
  if (c.source.kind != BufferKind::gradients) updates({BufferKind::gradients, place, 0});
  updates({BufferKind::norm_gradients, place, 0});
}

}  // namespace

const BufferRow& row_of(BufferKind kind) {
  using enum BufferKind;
  using Owner = BufferOwner;
  static constexpr auto table = std::to_array<BufferRow>({
      {batch, "batch slot", Owner::slot},
      {input, "received input", Owner::chunk, &Chunk::input_slots},
      {norm, "norm", Owner::segment, &Chunk::activation_slots},
      {norm_again, "recomputed norm", Owner::segment, &Chunk::stash_slots},
      {activations, "activations", Owner::segment, &Chunk::activation_slots},
      {product, "partial products", Owner::lane},
      {output, "output", Owner::segment, &Chunk::activation_slots},
      {statistics, "statistics of logits", Owner::lane},
      {norm_gradient, "gradient of a norm's output", Owner::lane},
      {output_gradient, "gradient of the output", Owner::segment, &Chunk::stash_slots},
      {stash, "stash", Owner::segment, &Chunk::stash_slots},
      {received_gradient, "received gradient", Owner::chunk, &Chunk::gradient_in_slots},
      {sent_gradient, "gradient to send", Owner::chunk, &Chunk::gradient_out_slots},
      {weights, "weights", Owner::bucket},
      {weight_scales, "scales of the weights", Owner::bucket},
      {quantized_weights, "quantized weights", Owner::bucket},
      {gradients, "gradients", Owner::place},
      {norm_gradients, "gradients of norms", Owner::place},
      {gradient_sums, "reduced gradients", Owner::bucket},
      {scalars, "the step's scalars", Owner::rank},
      {arrival, "the number of a barrier", Owner::rank},
  });
  const auto row = std::ranges::find(table, kind, &BufferRow::kind);
  require(row != table.end(), "BufferKind: no such kind");
  return *row;
}

int slots_of(const Program& program, const BufferId& buffer) {
  const BufferRow& row = row_of(buffer.kind);
  switch (row.owner) {
    case BufferOwner::slot: return program.batch_slots;
    case BufferOwner::chunk: return program.chunks[static_cast<std::size_t>(buffer.index)].*row.slots;
    case BufferOwner::segment:
      for (const Chunk& c : program.chunks) {
        if (buffer.index >= c.first_segment && buffer.index < c.end_segment) return c.*row.slots;
      }
      return 0;
    case BufferOwner::lane: return buffer.index >= 0 && buffer.index < program.lanes ? 1 : 0;
    default: return 1;
  }
}

BufferId input_buffer(const Program& program, const Instruction& i, int segment) {
  const Chunk& chunk = program.chunk_of(i);
  if (segment > chunk.first_segment) return {BufferKind::output, segment - 1, i.slot};
  if (chunk.previous_rank >= 0) return {BufferKind::input, i.chunk, i.input_slot};
  return {BufferKind::output, segment - 1, i.input_slot};
}

BufferId output_gradient_buffer(const Program& program, const Instruction& i, int segment) {
  const Chunk& chunk = program.chunk_of(i);
  if (segment == chunk.last_segment() && chunk.next_rank >= 0) return {BufferKind::received_gradient, i.chunk, i.gradient_in};
  return {BufferKind::output_gradient, segment, i.stash};
}

BufferId input_gradient_buffer(const Program& program, const Instruction& i) {
  const Chunk& chunk = program.chunk_of(i);
  if (i.segment > chunk.first_segment) return {BufferKind::output_gradient, i.segment - 1, i.stash};
  if (chunk.previous_rank >= 0) return {BufferKind::sent_gradient, i.chunk, i.gradient_out};
  return {BufferKind::output_gradient, i.segment - 1, i.gradient_out};
}

BufferId norm_buffer(const Instruction& i) {
  return i.recomputed ? BufferId{BufferKind::norm_again, i.segment, i.stash} : BufferId{BufferKind::norm, i.segment, i.slot};
}

BufferId pass_buffer(const Program& program, const Instruction& i, model::PassTensor tensor) {
  switch (tensor) {
    case model::PassTensor::product: return {BufferKind::product, i.lane, 0};
    case model::PassTensor::statistics: return {BufferKind::statistics, i.lane, 0};
    case model::PassTensor::norm_gradient: return {BufferKind::norm_gradient, i.lane, 0};
    case model::PassTensor::norm:
    case model::PassTensor::norm_scale:
    case model::PassTensor::norm_values: return norm_buffer(i);
    case model::PassTensor::activation_scale: return {BufferKind::activations, i.segment, i.slot};
    case model::PassTensor::gradient_scale: return {BufferKind::stash, i.segment, i.stash};
    case model::PassTensor::input_gradient:
    case model::PassTensor::input_scale:
    case model::PassTensor::input_values:
      if (i.segment < program.chunk_of(i).end_segment) return input_gradient_buffer(program, i);
      return output_gradient_buffer(program, i, i.segment - 1);
  }
  throw InternalError("pass_buffer: unknown tensor of a pass");
}

namespace {

std::vector<BufferUse> all_uses(const Program& program, const Instruction& i, const BucketList& buckets) {
  UseList uses(program, i, buckets);
  const auto all_sums = [&] { uses.each_bucket([&](int b) { uses.reads({BufferKind::gradient_sums, b, 0}); }); };
  constexpr BufferId scalars{BufferKind::scalars, 0, 0};
  switch (i.kind) {
    case InstructionKind::load_batch: uses.begins({BufferKind::batch, 0, i.batch_slot}); break;
    case InstructionKind::receive_activation: uses.begins({BufferKind::input, i.chunk, i.input_slot}); break;
    case InstructionKind::send_activation: uses.reads({BufferKind::output, program.chunk_of(i).last_segment(), i.slot}); break;
    case InstructionKind::receive_gradient: uses.begins({BufferKind::received_gradient, i.chunk, i.gradient_in}); break;
    case InstructionKind::send_gradient: uses.reads({BufferKind::sent_gradient, i.chunk, i.gradient_out}); break;
    case InstructionKind::forward:
    case InstructionKind::backward_input:
    case InstructionKind::backward_weight: uses.of_segment(); break;
    case InstructionKind::add_residual:
    case InstructionKind::norm: uses.of_norm(); break;
    case InstructionKind::round_norm: uses.updates(norm_buffer(i)); break;
    case InstructionKind::norm_backward: uses.of_norm_backward(); break;
    case InstructionKind::round_gradient: uses.updates(input_gradient_buffer(program, i)); break;
    case InstructionKind::collective: uses.of_collective(); break;
    case InstructionKind::loss:
      uses.reads({BufferKind::batch, 0, i.batch_slot});
      if (program.segment(i.segment).partial) uses.reads({BufferKind::statistics, i.lane, 0});
      uses.updates({BufferKind::activations, i.segment, i.slot});
      break;
    case InstructionKind::gradient_norm:
      all_sums();
      uses.updates(scalars);
      break;
    case InstructionKind::update:
      all_sums();
      uses.each_bucket([&](int b) { uses.updates({BufferKind::weights, b, 0}); });
      uses.reads(scalars);
      break;
    case InstructionKind::scale_weights:
      uses.reads({BufferKind::weights, i.bucket, 0});
      uses.updates({BufferKind::weight_scales, i.bucket, 0});
      break;
    case InstructionKind::quantize_weights:
      uses.reads({BufferKind::weights, i.bucket, 0});
      uses.reads({BufferKind::weight_scales, i.bucket, 0});
      uses.updates({BufferKind::quantized_weights, i.bucket, 0});
      break;
  }
  return uses.take();
}

}  // namespace

std::vector<BufferUse> buffer_uses(const Program& program, const Instruction& i, const std::vector<Bucket>& buckets) {
  return all_uses(program, i, {buckets});
}
std::vector<BufferUse> buffer_uses(const Program& program, const Instruction& i, const BucketsOfSegments& buckets) {
  return all_uses(program, i, {buckets.all(), &buckets});
}

BucketsOfSegments::BucketsOfSegments(const std::vector<Bucket>& buckets) : all_(buckets) {
  for (int b = 0; b < std::ssize(buckets); ++b) {
    for (const int segment : buckets[static_cast<std::size_t>(b)].segments) {
      const auto n = static_cast<std::size_t>(segment);
      if (n >= of_.size()) of_.resize(n + 1);
      if (of_[n].empty() || of_[n].back() != b) of_[n].push_back(b);
    }
  }
}

std::span<const int> BucketsOfSegments::of(int segment) const {
  const auto n = static_cast<std::size_t>(segment);
  return n < of_.size() ? std::span<const int>(of_[n]) : std::span<const int>();
}

bool computes_segment(InstructionKind kind) {
  return kind == InstructionKind::forward || kind == InstructionKind::backward_input ||
         kind == InstructionKind::backward_weight;
}

int parts_of(const model::Segment& segment, InstructionKind kind) {
  if (kind == InstructionKind::forward) return static_cast<int>(segment.in_forward.size()) + 1;
  if (kind == InstructionKind::backward_input) return static_cast<int>(segment.in_backward.size()) + 1;
  return 1;
}

bool is_collective(const Instruction& i) { return i.kind == InstructionKind::collective; }
bool is_barrier(const Instruction& i) { return is_collective(i) && i.collective.operation == Operation::barrier; }
bool communicates_in_pass(const Instruction& i) { return is_collective(i) && i.collective.purpose == Purpose::activations; }
bool moves_rows(const Instruction& i) {
  const auto tensor = i.collective.tensor;
  return communicates_in_pass(i) && tensor != model::PassTensor::statistics && tensor != model::PassTensor::activation_scale &&
         tensor != model::PassTensor::gradient_scale;
}
bool is_in_backward(const Instruction& i) { return i.stash >= 0; }

InstructionKind kind_of(model::Computation computation) {
  switch (computation) {
    case model::Computation::add_residual: return InstructionKind::add_residual;
    case model::Computation::norm: return InstructionKind::norm;
    case model::Computation::round_norm: return InstructionKind::round_norm;
    case model::Computation::forward: return InstructionKind::forward;
    case model::Computation::loss: return InstructionKind::loss;
    case model::Computation::backward_input: return InstructionKind::backward_input;
    case model::Computation::norm_backward: return InstructionKind::norm_backward;
    case model::Computation::round_gradient: return InstructionKind::round_gradient;
    case model::Computation::backward_weight: return InstructionKind::backward_weight;
  }
  throw InternalError("Computation: no such computation");
}

StreamRole stream_role(Purpose purpose) { return purpose == Purpose::activations ? StreamRole::exchange : StreamRole::reduce; }

std::optional<GroupStream> collective_group(const Instruction& instruction) {
  if (!is_collective(instruction)) return std::nullopt;
  return GroupStream{instruction.collective.group, stream_role(instruction.collective.purpose)};
}

std::string to_string(const GroupStream& group) {
  const bool second = group.role == StreamRole::reduce && group.group == groups::tensor;
  return to_string(group.group) + (second ? " " + to_string(group.role) : "");
}

std::string to_string(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::load_batch: return "load_batch";
    case InstructionKind::receive_activation: return "receive_activation";
    case InstructionKind::add_residual: return "add_residual";
    case InstructionKind::norm: return "norm";
    case InstructionKind::round_norm: return "round_norm";
    case InstructionKind::forward: return "forward";
    case InstructionKind::loss: return "loss";
    case InstructionKind::send_activation: return "send_activation";
    case InstructionKind::receive_gradient: return "receive_gradient";
    case InstructionKind::backward_input: return "backward_input";
    case InstructionKind::norm_backward: return "norm_backward";
    case InstructionKind::round_gradient: return "round_gradient";
    case InstructionKind::backward_weight: return "backward_weight";
    case InstructionKind::send_gradient: return "send_gradient";
    case InstructionKind::gradient_norm: return "gradient_norm";
    case InstructionKind::update: return "update";
    case InstructionKind::scale_weights: return "scale_weights";
    case InstructionKind::quantize_weights: return "quantize_weights";
    case InstructionKind::collective: return "collective";
  }
  throw InternalError("to_string: unknown instruction kind");
}

std::string to_string(StreamRole role) {
  switch (role) {
    case StreamRole::compute: return "compute";
    case StreamRole::copy: return "copy";
    case StreamRole::exchange: return "exchange";
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

namespace {

const char* name_of(model::PassTensor tensor) {
  switch (tensor) {
    case model::PassTensor::product: return "product";
    case model::PassTensor::norm: return "norm";
    case model::PassTensor::norm_scale: return "norm's scale";
    case model::PassTensor::norm_values: return "rounded norm";
    case model::PassTensor::statistics: return "logit statistics";
    case model::PassTensor::activation_scale: return "activation scale";
    case model::PassTensor::norm_gradient: return "norm's gradient";
    case model::PassTensor::input_gradient: return "gradient";
    case model::PassTensor::input_scale: return "gradient's scale";
    case model::PassTensor::input_values: return "rounded gradient";
    case model::PassTensor::gradient_scale: return "gradient scale";
  }
  throw InternalError("to_string: unknown tensor of a pass");
}

bool writes_norm(InstructionKind kind) { return kind == InstructionKind::norm || kind == InstructionKind::round_norm; }

}  // namespace

std::string to_string(const Collective& c) {
  std::string text = to_string(c.operation);
  if (c.tensor) return text + " of " + name_of(*c.tensor);
  if (c.destination.kind == BufferKind::weight_scales) {
    text += " of weight scales";
  } else if (c.operation != Operation::barrier) {
    text += " of " + to_string(c.purpose);
  }
  return text;
}

std::string kind_text(const Instruction& i) {
  const bool of_norm = is_collective(i) ? i.collective.destination.kind == BufferKind::norm_again : writes_norm(i.kind);
  return (i.recomputed && of_norm ? "recomputed " : "") + (is_collective(i) ? to_string(i.collective) : to_string(i.kind));
}

std::string to_string(const Instruction& instruction) {
  const bool collective = is_collective(instruction), of_segment = instruction.segment >= 0;
  std::string text = kind_text(instruction);
  if (instruction.micro_batch >= 0) text += " micro-batch " + std::to_string(instruction.micro_batch);
  if (instruction.chunk >= 0 && !of_segment) text += " chunk " + std::to_string(instruction.chunk);
  if (of_segment) text += " segment " + std::to_string(instruction.segment);
  if (instruction.bucket >= 0) text += " bucket " + std::to_string(instruction.bucket);
  if (instruction.part > 0) text += ", part " + std::to_string(instruction.part);
  if (collective && !of_segment) text += " over the " + to_string(instruction.collective.group) + " group";
  return text;
}

std::string to_string(const BufferId& buffer) {
  const BufferRow& row = row_of(buffer.kind);
  const std::string what(row.what), index = std::to_string(buffer.index), slot = std::to_string(buffer.slot);
  switch (row.owner) {
    case BufferOwner::rank: return what;
    case BufferOwner::slot: return what + " " + slot;
    case BufferOwner::chunk: return what + " of chunk " + index + ", slot " + slot;
    case BufferOwner::segment: return what + " of segment " + index + ", slot " + slot;
    case BufferOwner::lane: return what + " of lane " + index;
    case BufferOwner::bucket: return what + " of bucket " + index;
    case BufferOwner::place: return what + " in place " + index;
  }
  throw InternalError("to_string: unknown owner of a buffer");
}

}  // namespace plait::parallel
