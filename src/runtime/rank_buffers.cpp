#include "runtime/rank_buffers.h"

#include <algorithm>

#include "core/error.h"
#include "ops/adamw.h"

namespace plait::runtime {
namespace {

// The tensors of a segment in a slot; empty if it has none.
template <typename Tensors>
Tensors of(const std::map<std::pair<int, int>, Tensors>& all, int segment, int slot) {
  const auto it = all.find({segment, slot});
  return it == all.end() ? Tensors{} : it->second;
}

}  // namespace

RankBuffers::RankBuffers(const parallel::RankPlan& plan, DeviceMemory& memory,
                         const std::map<parallel::BufferId, std::byte*>& places, std::byte* symmetric)
    : plan_(plan), arena_(memory.allocate(plan.memory.bytes_of(parallel::Allocation::arena))), symmetric_(symmetric) {
  if (const std::size_t bytes = plan.memory.bytes_of(parallel::Allocation::symmetric); !symmetric_ && bytes > 0) {
    own_symmetric_ = memory.allocate(bytes);
    symmetric_ = static_cast<std::byte*>(own_symmetric_.data());
  }
  bind_state();
  bind_messages(memory, places);
  bind_buffers();
}

View RankBuffers::view(const model::TensorSpec& spec, int item) const {
  const parallel::MemoryItem& of = plan_.memory.items()[static_cast<std::size_t>(item)];
  std::byte* const base = of.in == parallel::Allocation::symmetric ? symmetric_ : static_cast<std::byte*>(arena_.data());
  return {base + of.offset, spec.dtype, spec.shape};
}

View& RankBuffers::member(parallel::StateTensor which) {
  using parallel::StateTensor;
  switch (which) {
    case StateTensor::weights: return weights;
    case StateTensor::gradients: return gradients;
    case StateTensor::gradient_sums: return kept_gradients;
    case StateTensor::master: return master;
    case StateTensor::exp_avg: return exp_avg;
    case StateTensor::exp_avg_sq: return exp_avg_sq;
    case StateTensor::adamw_table: return adamw_table;
    case StateTensor::scalars: return scalars;
    case StateTensor::evaluation_sums: return evaluation_sums;
    case StateTensor::arrival: return arrival;
    case StateTensor::optimizer_state: return optimizer_state;
    case StateTensor::quantized_weights: return quantized_;
    case StateTensor::weight_scales: return weight_scales_;
    case StateTensor::rope_table: return rope_table;
    case StateTensor::op_workspace: return workspace;
    case StateTensor::operand_workspace: return operand_workspace;
    case StateTensor::exchange_workspace: return exchange_workspace;
  }
  throw InternalError("RankBuffers: unknown state");
}

void RankBuffers::bind_state() {
  const parallel::FlatLayout& flat = plan_.flat;
  for (const parallel::StateTensorPlace& tensor : plan_.tensors.state) member(tensor.which) = view(tensor.spec, tensor.item);
  if (!kept_gradients) kept_gradients = gradients;
  if (!master) master = weights;
  for (const parallel::Range& range : flat.norm_ranges()) norm_ranges.push_back(kept_gradients.rows(range.first, range.count));
  std::vector<View> weight_views, gradient_views;
  for (std::size_t i = 0; i < plan_.parameters.size(); ++i) {
    const parallel::Range range = flat.parameter(i), gradient = flat.parameter_gradient(i);
    weight_views.push_back(weights.rows(range.first, range.count).reshaped(plan_.parameters[i].shape));
    gradient_views.push_back(gradients.rows(gradient.first, gradient.count).reshaped(plan_.parameters[i].shape));
  }
  segment_weights = model::bind_parameters(plan_.sizes.shape, plan_.parameters, weight_views);
  segment_gradients = model::bind_parameters(plan_.sizes.shape, plan_.parameters, gradient_views);
  std::vector<ops::Quantized> quantized(plan_.parameters.size());
  bucket_quantized_.resize(flat.buckets().size());
  if (quantized_) {
    auto* const memory = static_cast<std::byte*>(quantized_.data);
    for (const parallel::QuantizedWeight& at : parallel::quantized_weights(plan_.parameters, flat).list) {
      const Shape& shape = plan_.parameters[at.parameter].shape;
      quantized[at.parameter] = {.values = View(memory + at.values, DType::e4m3, shape),
                                 .transposed = View(memory + at.transposed, DType::e4m3, {shape[1], shape[0]}),
                                 .scale = weight_scales_.rows(at.scale, 1).reshaped({ops::scale_floats})};
      bucket_quantized_[flat.bucket_of(at.parameter)].push_back({weight_views[at.parameter], quantized[at.parameter]});
    }
  }
  segment_quantized = model::bind_quantized(plan_.sizes.shape, plan_.parameters, quantized);
}

void RankBuffers::bind_messages(DeviceMemory& memory, const std::map<parallel::BufferId, std::byte*>& places) {
  const DType type = plan_.sizes.compute;
  for (const parallel::ReceivedBuffer& received : parallel::received_buffers(plan_)) {
    const auto place = places.find(received.buffer);
    std::byte* data = place != places.end() ? place->second : nullptr;
    const std::size_t bytes =
        parallel::MemoryPlan::aligned(static_cast<std::size_t>(received.shape.elements()) * size_of(type));
    if (data) {
      linked_bytes_ += bytes;
    } else {
      received_.push_back(memory.allocate(bytes));
      data = static_cast<std::byte*>(received_.back().data());
    }
    messages_[received.buffer] = View(data, type, received.shape);
  }
}

void RankBuffers::bind_buffers() {
  // A buffer's tensors by name. In a stash, those that are computed again are apart from the gradients.
  struct Tensors {
    std::vector<model::TensorSpec> specs;
    std::vector<void*> memory;
  };
  std::map<std::pair<parallel::BufferId, bool>, Tensors> buffers;
  for (const parallel::BufferTensorPlace& tensor : plan_.tensors.buffers) {
    Tensors& tensors = buffers[{tensor.buffer, tensor.recomputed}];
    tensors.specs.push_back(tensor.spec);
    tensors.memory.push_back(view(tensor.spec, tensor.item).data);
  }
  batches.resize(static_cast<std::size_t>(plan_.train.batch_slots));
  for (std::vector<View>* of_lanes : {&products_, &norm_gradients_, &statistics_})
    of_lanes->resize(static_cast<std::size_t>(plan_.train.lanes));
  for (const auto& [id, tensors] : buffers) {
    const auto& [buffer, recomputed] = id;
    const std::pair place(buffer.index, buffer.slot);
    const auto lane = static_cast<std::size_t>(buffer.index);
    const auto only = [&] { return View(tensors.memory.front(), tensors.specs.front().dtype, tensors.specs.front().shape); };
    switch (buffer.kind) {
      case parallel::BufferKind::batch: {
        model::Batch& batch = batches[static_cast<std::size_t>(buffer.slot)];
        for (std::size_t i = 0; i < tensors.specs.size(); ++i) {
          const std::string& name = tensors.specs[i].name;
          (name == "tokens"    ? batch.tokens
           : name == "targets" ? batch.targets
                               : batch.starts) = {tensors.memory[i], tensors.specs[i].dtype, tensors.specs[i].shape};
        }
        break;
      }
      case parallel::BufferKind::norm: norms_[place] = model::bind_norm(tensors.specs, tensors.memory); break;
      case parallel::BufferKind::norm_again: norms_again_[place] = model::bind_norm(tensors.specs, tensors.memory); break;
      case parallel::BufferKind::activations:
        activations_[place] = model::overlay(activations_[place], model::bind_activations(tensors.specs, tensors.memory));
        break;
      case parallel::BufferKind::output: activations_[place].output = only(); break;
      case parallel::BufferKind::product: products_[lane] = only(); break;
      case parallel::BufferKind::norm_gradient: norm_gradients_[lane] = only(); break;
      case parallel::BufferKind::statistics: statistics_[lane] = only(); break;
      case parallel::BufferKind::stash:
        if (recomputed) {
          recomputed_[place] = model::bind_activations(tensors.specs, tensors.memory);
        } else {
          stashes_[place] = model::overlay(stashes_[place], model::bind_gradients(tensors.specs, tensors.memory));
        }
        break;
      case parallel::BufferKind::output_gradient:
        stashes_[place] = model::overlay(stashes_[place], model::bind_gradients(tensors.specs, tensors.memory));
        break;
      case parallel::BufferKind::sent_gradient: messages_[buffer] = only(); break;
      default: throw InternalError("RankBuffers: the arena has no " + to_string(buffer));
    }
  }
}

View RankBuffers::weight_scales(int bucket) const {
  const std::vector<ops::QuantizedTensor>& of = quantized_weights(bucket);
  require(!of.empty(), "RankBuffers: the bucket has no quantized weights");
  // The scales of a bucket lie one behind the other.
  return {of.front().out.scale.data, DType::f32, {std::ssize(of), ops::scale_floats}};
}

model::SegmentActivations RankBuffers::forward_activations(const parallel::Instruction& i) const {
  return activations_.at({i.segment, i.slot});
}

model::SegmentActivations RankBuffers::backward_activations(const parallel::Instruction& i) const {
  return model::overlay(activations_.at({i.segment, i.slot}), of(recomputed_, i.segment, i.stash));
}

model::SegmentGradients RankBuffers::output_gradient(const parallel::BufferId& buffer) const {
  if (buffer.kind == parallel::BufferKind::output_gradient) return stashes_.at({buffer.index, buffer.slot});
  model::SegmentGradients only;
  only.output = messages_.at(buffer);
  return only;
}

model::SegmentGradients RankBuffers::gradients_of(const parallel::Program& program, const parallel::Instruction& i) const {
  model::SegmentGradients gradients_of_segment = of(stashes_, i.segment, i.stash);
  if (has_output(program.kind(i.segment))) {
    gradients_of_segment.output = whole(parallel::output_gradient_buffer(program, i, i.segment));
  }
  return gradients_of_segment;
}

model::NormActivations RankBuffers::norm(const parallel::Instruction& i) const {
  return i.recomputed ? of(norms_again_, i.segment, i.stash) : of(norms_, i.segment, i.slot);
}

model::NormActivations RankBuffers::own_norm(const parallel::Instruction& i) const {
  model::NormActivations own = norm(i);
  own.out = plan_.sizes.own_rows(own.out);
  return own;
}

View RankBuffers::whole(const parallel::BufferId& buffer) const { return output_gradient(buffer).output; }

View RankBuffers::own_rows(const parallel::BufferId& buffer) const {
  if (buffer.kind == parallel::BufferKind::output) return activations_.at({buffer.index, buffer.slot}).output;
  return plan_.sizes.own_rows(whole(buffer));
}

View RankBuffers::message(const parallel::Program& program, const parallel::Instruction& i) const {
  switch (i.kind) {
    case parallel::InstructionKind::receive_activation:
      return own_rows(parallel::BufferId{parallel::BufferKind::input, i.chunk, i.input_slot});
    case parallel::InstructionKind::send_activation:
      return own_rows(parallel::BufferId{parallel::BufferKind::output, program.chunk_of(i).last_segment(), i.slot});
    case parallel::InstructionKind::receive_gradient:
      return own_rows(parallel::BufferId{parallel::BufferKind::received_gradient, i.chunk, i.gradient_in});
    case parallel::InstructionKind::send_gradient:
      return own_rows(parallel::BufferId{parallel::BufferKind::sent_gradient, i.chunk, i.gradient_out});
    default: throw InternalError("RankBuffers: " + to_string(i) + " carries no message");
  }
}

std::vector<View> RankBuffers::received() const {
  std::vector<View> views;
  for (const auto& [buffer, view] : messages_) {
    if (buffer.kind != parallel::BufferKind::sent_gradient) views.push_back(view);
  }
  return views;
}

View RankBuffers::bucket_weights(int index) const {
  const parallel::Range range = bucket(index).range;
  return weights.rows(range.first, range.count);
}

View RankBuffers::own_weights(int index) const {
  const parallel::Range range = plan_.flat.owned(bucket(index));
  return weights.rows(range.first, range.count);
}

View RankBuffers::bucket_gradients(int index) const {
  const parallel::Range range = plan_.flat.whole_gradient(bucket(index));
  return gradients.rows(range.first, range.count);
}

View RankBuffers::gradient_shard(int index) const {
  const parallel::Bucket& of = bucket(index);
  return bucket_gradients(index).rows(of.shard * of.shard_elements(), of.shard_elements());
}

View RankBuffers::kept_gradient(int index) const {
  const parallel::Range range = plan_.flat.kept_gradient(bucket(index));
  return kept_gradients.rows(range.first, range.count);
}

}  // namespace plait::runtime
