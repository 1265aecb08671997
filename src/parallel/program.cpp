#include "parallel/program.h"

#include <algorithm>

#include "core/error.h"

namespace plait::parallel {
namespace {

// Some buckets, and where they were looked up, which of them each segment is in.
struct BucketList {
  const std::vector<Bucket>& all;
  const BucketsOfSegments* of_segments = nullptr;
};

void add_buckets(std::vector<BufferUse>& uses, const BucketList& buckets, int segment, BufferKind kind, bool writes) {
  const auto add = [&](int b) {
    const Bucket& bucket = buckets.all[static_cast<std::size_t>(b)];
    if (kind == BufferKind::quantized_weights && !bucket.products) return;
    const bool of_weights = kind == BufferKind::weights || kind == BufferKind::quantized_weights;
    uses.push_back({{kind, of_weights ? b : bucket.place, 0}, writes});
  };
  if (buckets.of_segments) {
    for (const int b : buckets.of_segments->of(segment)) add(b);
    return;
  }
  for (int b = 0; b < std::ssize(buckets.all); ++b) {
    const std::vector<int>& of = buckets.all[static_cast<std::size_t>(b)].segments;
    if (std::find(of.begin(), of.end(), segment) != of.end()) add(b);
  }
}

void add_segment_uses(std::vector<BufferUse>& uses, const Program& program, const Instruction& i, const BucketList& buckets) {
  using enum BufferKind;
  using model::PassPart;
  const model::SegmentKind kind = program.kind(i.segment);
  const bool is_forward = i.kind == InstructionKind::forward, is_input = i.kind == InstructionKind::backward_input;
  const bool begins = i.part != PassPart::last, ends = i.part != PassPart::first;
  if (i.batch_slot >= 0) uses.push_back({{batch, 0, i.batch_slot}, false});
  if (has_norm(kind) && begins) uses.push_back({norm_buffer(i), false});
  if (is_forward || begins) uses.push_back({{activations, i.segment, i.slot}, is_forward && begins});
  if (is_forward && ends) {
    if (!has_output(kind)) {
      if (program.several) uses.push_back({{statistics, i.lane, 0}, true});
    } else if (program.several) {
      uses.push_back({{product, i.lane, 0}, true});
    } else {
      uses.push_back({{output, i.segment, i.slot}, true});
      if (has_norm(kind)) uses.push_back({input_buffer(program, i, i.segment), false});
    }
  }
  if (!is_forward) {
    if (has_norm(kind)) uses.push_back({{stash, i.segment, i.stash}, is_input && begins});
    if (has_output(kind) && begins) uses.push_back({output_gradient_buffer(program, i, i.segment), false});
  }
  if (is_input && ends) uses.push_back({{norm_gradient, i.lane, 0}, true});
  if (i.kind == InstructionKind::backward_weight) {
    add_buckets(uses, buckets, i.segment, gradients, true);
  } else {
    add_buckets(uses, buckets, i.segment, weights, false);
    if (program.fp8 && has_norm(kind)) add_buckets(uses, buckets, i.segment, quantized_weights, false);
  }
}

void add_exchange_uses(std::vector<BufferUse>& uses, const Program& program, const Instruction& i, const BucketList& buckets) {
  const Exchange& e = i.exchange;
  if (i.kind == InstructionKind::exchange_backward) {
    if (!e.norm) return uses.push_back({output_gradient_buffer(program, i, i.segment - 1), true});
    uses.push_back({{BufferKind::norm_gradient, i.lane, 0}, e.sum});
    uses.push_back({input_buffer(program, i, i.segment), false});
    uses.push_back({norm_buffer(i), false});
    if (has_output(program.kind(i.segment))) uses.push_back({output_gradient_buffer(program, i, i.segment), false});
    uses.push_back({input_gradient_buffer(program, i), true});
    add_buckets(uses, buckets, i.segment, BufferKind::weights, false);
    add_buckets(uses, buckets, i.segment, BufferKind::norm_gradients, true);
    return;
  }
  if (e.sum) {
    uses.push_back({{BufferKind::product, i.lane, 0}, true});  // summed where it is, before what is added
    if (has_norm(program.kind(i.segment - 1))) uses.push_back({input_buffer(program, i, i.segment - 1), false});
    uses.push_back({{BufferKind::output, i.segment - 1, i.slot}, true});
    add_buckets(uses, buckets, i.segment - 1, BufferKind::weights, false);
  }
  if (e.norm) {
    if (!e.sum) uses.push_back({input_buffer(program, i, i.segment), false});  // else as it has just been written
    uses.push_back({norm_buffer(i), true});
    add_buckets(uses, buckets, i.segment, BufferKind::weights, false);
  }
}

}  // namespace

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

namespace {

std::vector<BufferUse> all_uses(const Program& program, const Instruction& i, const BucketList& buckets) {
  std::vector<BufferUse> uses;
  const auto all_buckets = [&](BufferKind kind, bool writes) {
    for (std::size_t b = 0; b < buckets.all.size(); ++b) uses.push_back({{kind, static_cast<int>(b), 0}, writes});
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
    case InstructionKind::exchange_forward:
    case InstructionKind::exchange_recompute:
    case InstructionKind::exchange_backward: add_exchange_uses(uses, program, i, buckets); break;
    case InstructionKind::exchange_loss: uses.push_back({{BufferKind::statistics, i.lane, 0}, true}); break;
    case InstructionKind::loss:
      uses.push_back({{BufferKind::batch, 0, i.batch_slot}, false});
      if (program.several) uses.push_back({{BufferKind::statistics, i.lane, 0}, false});
      uses.push_back({{BufferKind::activations, i.segment, i.slot}, true});
      break;
    case InstructionKind::meet: uses.push_back({{BufferKind::arrival, 0, 0}, true}); break;
    case InstructionKind::reduce_gradients: {
      const Bucket& bucket = buckets.all[static_cast<std::size_t>(i.bucket)];
      uses.push_back({{BufferKind::gradients, bucket.place, 0}, true});
      uses.push_back({{BufferKind::norm_gradients, bucket.place, 0}, true});
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
    case InstructionKind::exchange_forward_scale: uses.push_back({{BufferKind::activations, i.segment, i.slot}, true}); break;
    case InstructionKind::exchange_backward_scale: uses.push_back({{BufferKind::stash, i.segment, i.stash}, true}); break;
    case InstructionKind::scale_weights:
      uses.push_back({{BufferKind::weights, i.bucket, 0}, false});
      uses.push_back({{BufferKind::weight_scales, i.bucket, 0}, true});
      break;
    case InstructionKind::exchange_weight_scales: uses.push_back({{BufferKind::weight_scales, i.bucket, 0}, true}); break;
    case InstructionKind::quantize_weights:
      uses.push_back({{BufferKind::weights, i.bucket, 0}, false});
      uses.push_back({{BufferKind::weight_scales, i.bucket, 0}, false});
      uses.push_back({{BufferKind::quantized_weights, i.bucket, 0}, true});
      break;
  }
  return uses;
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

bool is_exchange(InstructionKind kind) {
  return kind == InstructionKind::exchange_forward || kind == InstructionKind::exchange_recompute ||
         kind == InstructionKind::exchange_backward;
}

bool computes_segment(InstructionKind kind) {
  return kind == InstructionKind::forward || kind == InstructionKind::backward_input ||
         kind == InstructionKind::backward_weight;
}

bool communicates_in_pass(const Instruction& i) {
  return i.kind == InstructionKind::exchange_loss || (is_scale_exchange(i.kind) && i.segment >= 0) ||
         (is_exchange(i.kind) && i.exchange.communicates());
}

bool is_scale_exchange(InstructionKind kind) {
  return kind == InstructionKind::exchange_forward_scale || kind == InstructionKind::exchange_backward_scale ||
         kind == InstructionKind::exchange_weight_scales;
}

bool names_group(InstructionKind kind) { return kind == InstructionKind::meet || kind == InstructionKind::reduce_gradients; }

std::string to_string(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::load_batch: return "load_batch";
    case InstructionKind::receive_activation: return "receive_activation";
    case InstructionKind::exchange_forward: return "exchange_forward";
    case InstructionKind::forward: return "forward";
    case InstructionKind::exchange_loss: return "exchange_loss";
    case InstructionKind::loss: return "loss";
    case InstructionKind::send_activation: return "send_activation";
    case InstructionKind::receive_gradient: return "receive_gradient";
    case InstructionKind::exchange_recompute: return "exchange_recompute";
    case InstructionKind::backward_input: return "backward_input";
    case InstructionKind::exchange_backward: return "exchange_backward";
    case InstructionKind::backward_weight: return "backward_weight";
    case InstructionKind::send_gradient: return "send_gradient";
    case InstructionKind::meet: return "meet";
    case InstructionKind::reduce_gradients: return "reduce_gradients";
    case InstructionKind::gradient_norm: return "gradient_norm";
    case InstructionKind::reduce_scalars: return "reduce_scalars";
    case InstructionKind::update: return "update";
    case InstructionKind::gather_weights: return "gather_weights";
    case InstructionKind::exchange_forward_scale: return "exchange_forward_scale";
    case InstructionKind::exchange_backward_scale: return "exchange_backward_scale";
    case InstructionKind::scale_weights: return "scale_weights";
    case InstructionKind::exchange_weight_scales: return "exchange_weight_scales";
    case InstructionKind::quantize_weights: return "quantize_weights";
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

std::string kind_text(const Instruction& i) {
  std::string text = to_string(i.kind);
  if (is_exchange(i.kind) && !i.exchange.communicates()) text.replace(0, std::string("exchange").size(), "norm");
  return text;
}

std::string to_string(const Instruction& instruction) {
  std::string text = kind_text(instruction);
  const bool of_segment = instruction.segment >= 0;
  if (instruction.micro_batch >= 0) text += " micro-batch " + std::to_string(instruction.micro_batch);
  if (instruction.chunk >= 0 && !of_segment) text += " chunk " + std::to_string(instruction.chunk);
  if (of_segment) text += " segment " + std::to_string(instruction.segment);
  if (instruction.bucket >= 0) text += " bucket " + std::to_string(instruction.bucket);
  if (instruction.part != model::PassPart::whole)
    text += instruction.part == model::PassPart::first ? ", first part" : ", last product";
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
    case BufferKind::norm: return of("norm", "segment");
    case BufferKind::norm_again: return of("recomputed norm", "segment");
    case BufferKind::activations: return of("activations", "segment");
    case BufferKind::product: return "partial products of lane " + std::to_string(buffer.index);
    case BufferKind::statistics: return "statistics of logits of lane " + std::to_string(buffer.index);
    case BufferKind::norm_gradient: return "gradient of a norm's output of lane " + std::to_string(buffer.index);
    case BufferKind::output: return of("output", "segment");
    case BufferKind::output_gradient: return of("gradient of the output", "segment");
    case BufferKind::stash: return of("stash", "segment");
    case BufferKind::received_gradient: return of("received gradient", "chunk");
    case BufferKind::sent_gradient: return of("gradient to send", "chunk");
    case BufferKind::weights: return "weights of bucket " + std::to_string(buffer.index);
    case BufferKind::weight_scales: return "scales of the weights of bucket " + std::to_string(buffer.index);
    case BufferKind::quantized_weights: return "quantized weights of bucket " + std::to_string(buffer.index);
    case BufferKind::gradients: return "gradients in place " + std::to_string(buffer.index);
    case BufferKind::norm_gradients: return "gradients of norms in place " + std::to_string(buffer.index);
    case BufferKind::gradient_sums: return "reduced gradients of bucket " + std::to_string(buffer.index);
    case BufferKind::scalars: return "the step's scalars";
    case BufferKind::arrival: return "the number that stages meet with";
  }
  throw InternalError("to_string: unknown buffer");
}

}  // namespace plait::parallel
