#include "runtime/rank_buffers.h"

#include <algorithm>

#include "core/error.h"
#include "ops/adamw.h"

namespace plait::runtime {
namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + parallel::MemoryPlan::alignment - 1) / parallel::MemoryPlan::alignment * parallel::MemoryPlan::alignment;
}

}  // namespace

RankBuffers::RankBuffers(const parallel::RankPlan& plan, DeviceMemory& memory,
                         const std::map<parallel::BufferId, std::byte*>& places)
    : plan_(plan), arena_(memory.allocate(plan.memory.arena_bytes())) {
  bind_state();
  bind_messages(memory, places);
  bind_lanes();
  bind_segments();
}

View RankBuffers::item(const std::string& name, DType type, Shape shape) const {
  const parallel::MemoryItem& found = plan_.memory.find(name);
  View view(static_cast<char*>(arena_.data()) + found.offset, type, shape);
  require(view.bytes() <= found.bytes, "RankBuffers: '" + name + "' is larger than planned");
  return view;
}

void* RankBuffers::memory_of(const std::string& name) const {
  return static_cast<char*>(arena_.data()) + plan_.memory.find(name).offset;
}

void RankBuffers::bind_state() {
  const parallel::FlatLayout& flat = plan_.flat;
  const Shape state{flat.state_elements()};
  const DType scalar = plan_.scalar_type();
  weights = item("weights", plan_.sizes.compute, {flat.elements()});
  gradients = item("gradients", plan_.gradient_type, {flat.whole_gradient_elements()});
  kept_gradients = plan_.zero > 1 ? item("gradient_sums", plan_.gradient_type, {flat.kept_gradient_elements()}) : gradients;
  master = plan_.separate_master ? item("master", plan_.master_type, state) : weights;
  exp_avg = item("exp_avg", plan_.master_type, state);
  exp_avg_sq = item("exp_avg_sq", plan_.master_type, state);
  adamw_table = item("adamw_table", DType::u8, {static_cast<std::int64_t>(plan_.memory.find("adamw_table").bytes)});
  scalars = item("scalars", scalar, {2});
  evaluation_loss = item("evaluation_loss", scalar, {1});
  if (plan_.meets()) arrival = item("arrival", scalar, {1});
  optimizer_state = item("optimizer_state", DType::f32, {static_cast<std::int64_t>(sizeof(ops::OptimizerState) / 4)});
  workspace = item("op_workspace", DType::u8, {static_cast<std::int64_t>(plan_.memory.find("op_workspace").bytes)});
  if (plan_.train.several) {
    exchange_workspace =
        item("exchange_workspace", DType::u8, {static_cast<std::int64_t>(plan_.memory.find("exchange_workspace").bytes)});
  }
  const model::MicroBatchShape& mb = plan_.sizes.micro_batch;
  if (plan_.sizes.shape.position == model::Position::rope) {
    rope_table = item("rope_table", scalar, {mb.sequence, plan_.sizes.shape.head_dim});
  }
  for (const parallel::Range& range : flat.norm_ranges()) norm_ranges.push_back(kept_gradients.rows(range.first, range.count));
  for (int slot = 0; slot < plan_.train.batch_slots; ++slot) {
    batches.push_back({item("tokens " + std::to_string(slot), DType::i32, {mb.rows()}),
                       item("targets " + std::to_string(slot), DType::i32, {mb.rows()})});
  }
  std::vector<View> weight_views, gradient_views;
  for (std::size_t i = 0; i < plan_.parameters.size(); ++i) {
    const parallel::Range range = flat.parameter(i), gradient = flat.parameter_gradient(i);
    weight_views.push_back(weights.rows(range.first, range.count).reshaped(plan_.parameters[i].shape));
    gradient_views.push_back(gradients.rows(gradient.first, gradient.count).reshaped(plan_.parameters[i].shape));
  }
  segment_weights = model::bind_parameters(plan_.sizes.shape, plan_.parameters, weight_views);
  segment_gradients = model::bind_parameters(plan_.sizes.shape, plan_.parameters, gradient_views);
}

void RankBuffers::bind_messages(DeviceMemory& memory, const std::map<parallel::BufferId, std::byte*>& places) {
  const DType type = plan_.sizes.compute;
  for (const parallel::ReceivedBuffer& received : parallel::received_buffers(plan_)) {
    const auto place = places.find(received.buffer);
    std::byte* data = place != places.end() ? place->second : nullptr;
    const std::size_t bytes = aligned(static_cast<std::size_t>(received.shape.elements()) * size_of(type));
    if (data) {
      linked_bytes_ += bytes;
    } else {
      received_.push_back(memory.allocate(bytes));
      data = static_cast<std::byte*>(received_.back().data());
    }
    messages_[received.buffer] = View(data, type, received.shape);
  }
  const Shape own{plan_.sizes.own_rows(), plan_.sizes.shape.hidden};
  for (std::size_t index = 0; index < plan_.train.chunks.size(); ++index) {
    for (int slot = 0; slot < plan_.train.chunks[index].gradient_out_slots; ++slot) {
      const parallel::BufferId buffer{parallel::BufferKind::sent_gradient, static_cast<int>(index), slot};
      messages_[buffer] = item(parallel::message_item(buffer), type, own);
    }
  }
}

void RankBuffers::bind_lanes() {
  const std::int64_t rows = plan_.sizes.micro_batch.rows();
  for (int lane = 0; lane < plan_.train.lanes; ++lane) {
    const auto bind = [&](std::vector<View>& views, parallel::BufferKind kind, DType type, Shape shape) {
      const std::string name = parallel::lane_item({kind, lane, 0});
      views.push_back(plan_.memory.has(name) ? item(name, type, shape) : View());
    };
    const Shape whole{rows, plan_.sizes.shape.hidden};
    bind(products_, parallel::BufferKind::product, plan_.sizes.compute, whole);
    bind(norm_gradients_, parallel::BufferKind::norm_gradient, plan_.sizes.compute, whole);
    bind(statistics_, parallel::BufferKind::statistics, plan_.scalar_type(), {plan_.sizes.split.size, rows, 3});
  }
}

void RankBuffers::bind_segments() {
  for (std::size_t index = 0; index < plan_.train.chunks.size(); ++index) {
    const parallel::Chunk& c = plan_.train.chunks[index];
    for (int segment = c.first_segment; segment < c.end_segment; ++segment) {
      const std::vector<model::TensorSpec> norm_specs = model::norm_specs(plan_.sizes, segment);
      const auto bind_norms = [&](int slots, auto& norms, const auto& item) {
        for (int slot = 0; slot < slots; ++slot) {
          std::vector<void*> memory;
          for (const model::TensorSpec& spec : norm_specs) memory.push_back(memory_of(item(segment, slot, spec.name)));
          norms[{segment, slot}] = model::bind_norm(norm_specs, memory);
        }
      };
      bind_norms(c.activation_slots, norms_, parallel::activation_item);
      if (plan_.recomputes_norm(segment)) bind_norms(c.stash_slots, norms_again_, parallel::stash_item);
      const std::vector<model::TensorSpec> specs = model::activation_specs(plan_.sizes, segment);
      const auto is_scratch = [](const model::TensorSpec& spec) { return spec.keep == model::Keep::scratch; };
      for (int slot = 0; slot < c.activation_slots; ++slot) {
        std::vector<void*> memory;
        for (const model::TensorSpec& spec : specs) {
          memory.push_back(memory_of(is_scratch(spec) ? parallel::scratch_item(spec.name)
                                                      : parallel::activation_item(segment, slot, spec.name)));
        }
        activations_[{segment, slot}] = model::bind_activations(specs, memory);
      }
      std::vector<model::TensorSpec> recomputed;
      if (has_norm(plan_.sizes.shape.kind(segment)))
        std::copy_if(specs.begin(), specs.end(), std::back_inserter(recomputed), is_scratch);
      std::vector<model::TensorSpec> gradient_specs = model::gradient_specs(plan_.sizes, segment);
      if (segment == c.last_segment() && c.next_rank >= 0) {
        std::erase_if(gradient_specs, [](const model::TensorSpec& spec) { return spec.role == model::TensorRole::output; });
      }
      for (int stash = 0; stash < c.stash_slots; ++stash) {
        std::vector<void*> memory, gradient_memory;
        for (const model::TensorSpec& spec : recomputed)
          memory.push_back(memory_of(parallel::stash_item(segment, stash, spec.name)));
        recomputed_[{segment, stash}] = model::bind_activations(recomputed, memory);
        for (const model::TensorSpec& spec : gradient_specs) {
          const std::string name = parallel::gradient_name(spec.name);
          gradient_memory.push_back(
              memory_of(is_scratch(spec) ? parallel::scratch_item(name) : parallel::stash_item(segment, stash, name)));
        }
        stashes_[{segment, stash}] = model::bind_gradients(gradient_specs, gradient_memory);
      }
    }
  }
}

model::SegmentActivations RankBuffers::forward_activations(const parallel::Instruction& i) const {
  return activations_.at({i.segment, i.slot});
}

model::SegmentActivations RankBuffers::backward_activations(const parallel::Instruction& i) const {
  return model::overlay(activations_.at({i.segment, i.slot}), recomputed_.at({i.segment, i.stash}));
}

model::SegmentGradients RankBuffers::gradients_of(const parallel::Program& program, const parallel::Instruction& i) const {
  model::SegmentGradients gradients_of_segment = stashes_.at({i.segment, i.stash});
  if (has_output(program.kind(i.segment))) {
    gradients_of_segment.output = whole(parallel::output_gradient_buffer(program, i, i.segment));
  }
  return gradients_of_segment;
}

model::NormActivations RankBuffers::norm(const parallel::Instruction& i) const {
  return i.recomputed ? norms_again_.at({i.segment, i.stash}) : norms_.at({i.segment, i.slot});
}

model::NormActivations RankBuffers::own_norm(const parallel::Instruction& i) const {
  model::NormActivations own = norm(i);
  own.out = own_rows(own.out);
  return own;
}

View RankBuffers::own_rows(View whole) const {
  const std::int64_t rows = plan_.sizes.own_rows();
  return rows == whole.shape[0] ? whole : whole.rows(plan_.sizes.split.rank * rows, rows);
}

View RankBuffers::whole(const parallel::BufferId& buffer) const {
  if (buffer.kind == parallel::BufferKind::output_gradient) return stashes_.at({buffer.index, buffer.slot}).output;
  return messages_.at(buffer);
}

View RankBuffers::own_rows(const parallel::BufferId& buffer) const {
  if (buffer.kind == parallel::BufferKind::output) return activations_.at({buffer.index, buffer.slot}).output;
  return own_rows(whole(buffer));
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
  const View whole = bucket_gradients(index);
  const std::int64_t count = whole.elements() / plan_.layout.data;
  return whole.rows(plan_.coordinates().data * count, count);
}

View RankBuffers::kept_gradient(int index) const {
  const parallel::Range range = plan_.flat.kept_gradient(bucket(index));
  return kept_gradients.rows(range.first, range.count);
}

}  // namespace plait::runtime
