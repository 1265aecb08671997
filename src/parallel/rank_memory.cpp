#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"
#include "ops/op_context.h"
#include "ops/quantize.h"
#include "parallel/program/program_waits.h"
#include "parallel/rank_plan.h"

namespace plait::parallel {
namespace {

// The instructions between which each buffer holds something, in program order. Buffers that the compute stream uses at
// different times may share memory. A buffer that another stream uses lives, for that use, from the last instruction of the
// compute stream that is sure to have run before it to the first that begins only after it. If the step has no such
// instruction, the buffer's memory is not shared.
//
// A rank's programs use the same memory, but never at the same time: their instructions are counted on, one program after the
// other.
class LifetimeTable {
 public:
  LifetimeTable(const Program& train, const Program& evaluate, const std::vector<Bucket>& buckets) {
    add(train, buckets);
    add(evaluate, buckets);
  }

  bool has(const BufferId& buffer) const { return buffers_.contains(buffer); }
  // The lifetimes of a buffer, ascending and apart; empty: always live. A buffer that is never used would count as always live,
  // so it is refused.
  std::vector<Lifetime> of(const BufferId& buffer) const { return merged(buffer, &Buffer::lifetimes); }
  // The same for what only a segment's forward uses of its activations, or of its norm's.
  std::vector<Lifetime> of_forward(const BufferId& buffer) const { return merged(buffer, &Buffer::forwards); }

 private:
  struct Buffer {
    std::vector<Lifetime> lifetimes, forwards;
    bool always = false;
  };

  std::vector<Lifetime> merged(const BufferId& buffer, std::vector<Lifetime> Buffer::* of) const {
    const auto it = buffers_.find(buffer);
    require(it != buffers_.end(), "LifetimeTable: nothing in the program writes the " + to_string(buffer));
    if (it->second.always) return {};
    std::vector<Lifetime> merged;
    for (const Lifetime& l : it->second.*of) {
      if (!merged.empty() && l.first <= merged.back().last) {
        merged.back().last = std::max(merged.back().last, l.last);
      } else {
        merged.push_back(l);
      }
    }
    return merged;
  }

  void add(const Program& program, const std::vector<Bucket>& buckets);

  std::map<BufferId, Buffer> buffers_;
  int counted_ = 0;  // instructions of the programs so far
};

// The lifetime that each instruction gives its buffers; nothing if their memory cannot be shared.
std::vector<std::optional<Lifetime>> spans_of(const Program& program) {
  constexpr int compute = 0;
  const ProgramOrder order(program);
  const int count = order.count();
  const auto on_compute = [&](int n) { return program.at(n).stream == compute; };
  int last_compute = -1;
  for (int n = 0; n < count; ++n) last_compute = on_compute(n) ? n : last_compute;
  std::vector<std::optional<Lifetime>> spans(static_cast<std::size_t>(count));
  std::vector<std::vector<int>> unended(program.streams.size());  // not yet waited for by the compute stream
  for (int n = 0; n < count; ++n) {
    std::optional<Lifetime>& span = spans[static_cast<std::size_t>(n)];
    if (on_compute(n)) {
      span = {n, n};
      for (std::size_t s = 1; s < unended.size(); ++s) {
        std::erase_if(unended[s], [&](int other) {
          if (order.last_before(n, static_cast<int>(s)) < other) return false;
          if (auto& ended = spans[static_cast<std::size_t>(other)]) ended->last = n;
          return true;
        });
      }
      continue;
    }
    unended[static_cast<std::size_t>(program.at(n).stream)].push_back(n);
    const int before = order.last_before(n, compute);
    // The whole previous step has run by then; else some of it may still be running beside this instruction.
    if (before >= 0 || before == last_compute - count) span = {std::max(before, 0), n};
  }
  for (const std::vector<int>& list : unended) {
    for (const int n : list) spans[static_cast<std::size_t>(n)].reset();
  }
  return spans;
}

void LifetimeTable::add(const Program& program, const std::vector<Bucket>& buckets) {
  const std::vector<std::optional<Lifetime>> spans = spans_of(program);
  const BucketsOfSegments of_segments(buckets);
  std::set<BufferId> begun;
  for (int n = 0; n < static_cast<int>(spans.size()); ++n) {
    const Instruction& i = program.at(n);
    for (const BufferUse& use : buffer_uses(program, i, of_segments)) {
      if (use.begins) begun.insert(use.buffer);
      if (!use.begins && !begun.contains(use.buffer)) continue;
      Buffer& buffer = buffers_[use.buffer];
      const std::optional<Lifetime>& span = spans[static_cast<std::size_t>(n)];
      if (!span) {
        buffer.always = true;
        continue;
      }
      const Lifetime used{span->first + counted_, span->last + counted_};
      if (use.begins || buffer.lifetimes.empty()) {
        buffer.lifetimes.push_back(used);
      } else {
        Lifetime& last = buffer.lifetimes.back();
        last = {std::min(last.first, used.first), std::max(last.last, used.last)};
      }
      if (i.segment < 0 || is_in_backward(i) || i.kind == InstructionKind::loss) continue;
      if (use.begins || buffer.forwards.empty()) {
        buffer.forwards.push_back(used);
      } else {
        buffer.forwards.back().last = std::max(buffer.forwards.back().last, used.last);
      }
    }
  }
  counted_ += static_cast<int>(spans.size());
}

// The name of a message buffer in the memory plan.
std::string message_item(const BufferId& buffer) {
  const char* const what = buffer.kind == BufferKind::input               ? "input"
                           : buffer.kind == BufferKind::received_gradient ? "gradient_in"
                                                                          : "gradient_out";
  return std::string("message ") + what + " chunk " + std::to_string(buffer.index) + " slot " + std::to_string(buffer.slot);
}

class MemoryItems {
 public:
  explicit MemoryItems(const RankPlan& plan) : plan_(plan), table_(plan.train, plan.evaluate, plan.flat.buckets()) {
    if (!plan.goes_by_links(exchange_group)) return;
    for (const Program* program : {&plan.train, &plan.evaluate}) {
      for (const Instruction& i : program->instructions) {
        if (is_collective(i) && i.collective.into_free) gathered_.insert(i.collective.destination);
      }
    }
  }

  void take(RankPlan& plan) {
    for (auto& [name, scratch] : scratch_) {
      std::vector<Lifetime>& lifetimes = scratch.item.lifetimes;
      std::sort(lifetimes.begin(), lifetimes.end());
      lifetimes.erase(std::unique(lifetimes.begin(), lifetimes.end()), lifetimes.end());
      for (const std::size_t tensor : scratch.tensors) tensors_.buffers[tensor].item = static_cast<int>(items_.size());
      items_.push_back(std::move(scratch.item));
    }
    plan.memory = MemoryPlan(std::move(items_));
    plan.tensors = std::move(tensors_);
  }

  void state() {
    using enum StateTensor;
    const FlatLayout& flat = plan_.flat;
    const DType scalar = plan_.scalar_type();
    const Shape state{flat.state_elements()};
    add(weights, "weights", "weights", plan_.sizes.compute, {flat.elements()});
    add(gradients, "gradients", "gradients", plan_.gradient_type, {flat.whole_gradient_elements()});
    if (plan_.zero > 1) add(gradient_sums, "gradient_sums", "gradients", plan_.gradient_type, {flat.kept_gradient_elements()});
    if (plan_.separate_master) add(master, "master", "optimizer", plan_.master_type, state);
    if (plan_.sizes.fp8) {
      const QuantizedWeights quantized = parallel::quantized_weights(plan_.parameters, flat);
      add(StateTensor::quantized_weights, "quantized_weights", "weights", quantized.bytes);
      add(weight_scales, "weight_scales", "weights", DType::f32, {std::ssize(quantized.list), ops::scale_floats});
    }
    add(exp_avg, "exp_avg", "optimizer", plan_.moment_type, state);
    add(exp_avg_sq, "exp_avg_sq", "optimizer", plan_.moment_type, state);
    add(adamw_table, "adamw_table", "constants", ops::adamw_table_bytes(flat.adamw_ranges(), plan_.moment_type));
    add(scalars, "scalars", "constants", scalar, {3});
    add(evaluation_sums, "evaluation_sums", "constants", scalar, {2});
    if (plan_.has_barrier()) add(arrival, "arrival", "constants", scalar, {1});
    add(optimizer_state, "optimizer_state", "constants", DType::f32, {ops::optimizer_state_floats});
  }

  void per_rank() {
    const model::ModelShape s = plan_.local_shape();
    const model::MicroBatchShape& mb = plan_.sizes.micro_batch;
    if (s.position == model::Position::rope)
      add(StateTensor::rope_table, "rope_table", "constants", plan_.scalar_type(), {mb.sequence, s.head_dim});
    std::size_t workspace = 0;
    for (int segment = 0; segment < s.segments(); ++segment) {
      if (s.kind(segment) != model::SegmentKind::attention) continue;
      const ops::AttentionShape attention = model::attention_shape(plan_.sizes, segment);
      workspace =
          std::max(workspace, ops::workspace_bytes(plan_.device_kind, {attention, plan_.sizes.compute, plan_.deterministic}));
    }
    add(StateTensor::op_workspace, "op_workspace", "workspace", workspace);
    if (plan_.sizes.fp8)
      add(StateTensor::operand_workspace, "operand_workspace", "workspace", model::operand_workspace_bytes(plan_.sizes));
    if (plan_.sizes.split.size > 1) {
      add(StateTensor::exchange_workspace, "exchange_workspace", "workspace",
          ops::norm_workspace_bytes(plan_.sizes.shape.hidden));
    }
    for (int slot = 0; slot < plan_.train.batch_slots; ++slot) {
      std::vector<const char*> names{"tokens", "targets"};
      if (mb.documents == Documents::separate) names.push_back("starts");
      for (const char* name : names) {
        add({BufferKind::batch, 0, slot}, {name, {mb.rows()}, DType::i32}, std::string(name) + " " + std::to_string(slot),
            "batch", {});
      }
    }
  }

  void received() {
    const auto always = [&](std::string name, std::size_t bytes) {
      items_.push_back({std::move(name), "messages", bytes, {}, Allocation::link});
    };
    std::set<std::pair<StreamRole, std::vector<int>>> made;  // groups of the same stream and ranks share a communicator
    for (const GroupStream& group : group_streams_of(plan_)) {
      const std::string what = group == exchange_group         ? "exchange"
                               : group == reduction_group      ? "reduction"
                               : group.group == groups::tensor ? "tensor reduction"
                                                               : to_string(group.group);
      const std::size_t bytes = plan_.landing_bytes(group);
      if (bytes > 0 && made.emplace(group.role, plan_.members(group.group)).second) always(what + " landing", bytes);
    }
    for (const ReceivedBuffer& buffer : received_buffers(plan_)) {
      always(message_item(buffer.buffer), static_cast<std::size_t>(buffer.shape.elements()) * size_of(plan_.sizes.compute));
    }
  }

  void lanes() {
    const model::SegmentSizes& sizes = plan_.sizes;
    const std::int64_t rows = sizes.micro_batch.rows();
    const auto has = [&](BufferKind kind, int lane, DType type, Shape shape) {
      const BufferId buffer{kind, lane, 0};
      if (table_.has(buffer)) add(buffer, {"", shape, type}, to_string(buffer), "exchanges", table_.of(buffer));
    };
    const auto holds = [&](auto&& is) {
      for (int segment = 0; segment < sizes.shape.segments(); ++segment) {
        if (plan_.holds(segment) && is(sizes.shape.kind(segment))) return true;
      }
      return false;
    };
    const Shape whole{rows, sizes.shape.hidden};
    for (int lane = 0; lane < plan_.train.lanes; ++lane) {
      if (holds(model::has_norm)) has(BufferKind::norm_gradient, lane, sizes.compute, whole);
      if (plan_.sizes.split.size == 1) continue;
      if (holds(model::has_output)) has(BufferKind::product, lane, sizes.compute, whole);
      if (holds(model::reads_targets)) has(BufferKind::statistics, lane, plan_.scalar_type(), {sizes.split.size, rows, 3});
    }
  }

  void chunk(int index) {
    const Chunk& c = plan_.train.chunks[static_cast<std::size_t>(index)];
    for (int slot = 0; slot < c.gradient_out_slots; ++slot) {
      const BufferId buffer{BufferKind::sent_gradient, index, slot};
      add(buffer, {"", plan_.sizes.own_residual(), plan_.sizes.compute}, message_item(buffer), "messages", {});
    }
    for (int segment = c.first_segment; segment < c.end_segment; ++segment) {
      norm(c, segment);
      activations_and_stash(c, segment);
    }
  }

 private:
  void add(StateTensor which, const std::string& name, const char* kind, DType type, Shape shape) {
    tensors_.state.push_back({which, {name, shape, type}, static_cast<int>(items_.size())});
    items_.push_back({name, kind, tensors_.state.back().spec.bytes(), {}});
  }
  void add(StateTensor which, const std::string& name, const char* kind, std::size_t bytes) {
    add(which, name, kind, DType::u8, {static_cast<std::int64_t>(bytes)});
  }
  void add(const BufferId& buffer, const model::TensorSpec& spec, std::string name, const char* kind,
           std::vector<Lifetime> lifetimes, bool recomputed = false) {
    tensors_.buffers.push_back({buffer, spec, recomputed, static_cast<int>(items_.size())});
    const Allocation in = spec.gathered && gathered_.contains(buffer) ? Allocation::symmetric : Allocation::arena;
    items_.push_back({std::move(name), kind, spec.bytes(), std::move(lifetimes), in});
  }

  void norm(const Chunk& c, int segment) {
    for (const model::TensorSpec& spec : model::norm_specs(plan_.sizes, segment)) {
      for (int slot = 0; slot < c.activation_slots; ++slot) {
        const BufferId buffer{BufferKind::norm, segment, slot};
        const bool kept = spec.keep == model::Keep::saved;
        add(buffer, spec, name_of(segment, "slot", slot, spec.name), kept ? "activations" : "scratch",
            kept ? table_.of(buffer) : table_.of_forward(buffer));
      }
      if (!plan_.recomputes_norm(segment)) continue;
      for (int stash = 0; stash < c.stash_slots; ++stash) {
        const BufferId buffer{BufferKind::norm_again, segment, stash};
        add(buffer, spec, name_of(segment, "stash", stash, spec.name), "activations", table_.of(buffer));
      }
    }
  }

  void activations_and_stash(const Chunk& c, int segment) {
    const bool received = segment == c.last_segment() && c.next_rank >= 0;
    const bool has_backward_input = model::has_norm(plan_.sizes.shape.kind(segment));
    const bool in_parts = !plan_.train.segment(segment).in_forward.empty();  // another instruction of forward uses them later
    for (const model::TensorSpec& spec : model::activation_specs(plan_.sizes, segment)) {
      const bool output = spec.role == model::TensorRole::output;
      for (int slot = 0; slot < c.activation_slots && spec.keep != model::Keep::backward; ++slot) {
        const BufferId buffer{output ? BufferKind::output : BufferKind::activations, segment, slot};
        if (spec.keep == model::Keep::forward || (spec.keep == model::Keep::scratch && in_parts)) {
          add(buffer, spec, name_of(segment, "slot", slot, spec.name), "scratch", table_.of_forward(buffer));
        } else if (spec.keep == model::Keep::scratch) {
          scratch(buffer, spec, spec.name);
        } else {
          add(buffer, spec, name_of(segment, "slot", slot, spec.name), "activations", table_.of(buffer));
        }
      }
      // backward_input computes these, and backward_weight needs them as well.
      const bool in_backward = spec.keep == model::Keep::scratch || spec.keep == model::Keep::backward;
      if (in_backward && has_backward_input) each_stash(c, segment, spec, spec.name, true);
    }
    for (const model::TensorSpec& spec : model::gradient_specs(plan_.sizes, segment, received)) {
      const std::string name = gradient_name(spec.name);
      const bool output = spec.role == model::TensorRole::output, beside = spec.role == model::TensorRole::beside_output;
      if (output || (beside && !received)) {
        for (int stash = 0; !received && stash < c.stash_slots; ++stash) {
          const BufferId buffer{BufferKind::output_gradient, segment, stash};
          add(buffer, spec, name_of(segment, "stash", stash, name), "gradients of activations", table_.of(buffer));
        }
      } else if (spec.keep == model::Keep::scratch) {
        for (int stash = 0; stash < c.stash_slots; ++stash) scratch({BufferKind::stash, segment, stash}, spec, name);
      } else {
        each_stash(c, segment, spec, name, false);
      }
    }
  }

  void each_stash(const Chunk& c, int segment, const model::TensorSpec& spec, const std::string& name, bool recomputed) {
    for (int stash = 0; stash < c.stash_slots; ++stash) {
      const BufferId buffer{BufferKind::stash, segment, stash};
      add(buffer, spec, name_of(segment, "stash", stash, name), "gradients of activations", table_.of(buffer), recomputed);
    }
  }

  // All segments share one place for it, live only in the instruction with which each lifetime of the buffer begins.
  void scratch(const BufferId& buffer, const model::TensorSpec& spec, const std::string& name) {
    Scratch& shared = scratch_[name];
    shared.item.name = "scratch " + name, shared.item.kind = "scratch";
    shared.item.bytes = std::max(shared.item.bytes, spec.bytes());
    for (const Lifetime& l : table_.of(buffer)) shared.item.lifetimes.push_back({l.first, l.first});  // in no order yet
    shared.tensors.push_back(tensors_.buffers.size());
    tensors_.buffers.push_back({buffer, spec});
  }

  static std::string name_of(int segment, const char* what, int slot, const std::string& tensor) {
    return "segment " + std::to_string(segment) + " " + what + " " + std::to_string(slot) + " " + tensor;
  }

  struct Scratch {
    MemoryItem item;
    std::vector<std::size_t> tensors;  // indices into tensors_.buffers
  };

  const RankPlan& plan_;
  LifetimeTable table_;
  std::set<BufferId> gathered_;  // others push into these
  std::vector<MemoryItem> items_;
  RankTensors tensors_;
  std::map<std::string, Scratch> scratch_;
};

}  // namespace

void plan_memory(RankPlan& plan) {
  MemoryItems items(plan);
  items.state();
  items.per_rank();
  items.received();
  items.lanes();
  for (int chunk = 0; chunk < static_cast<int>(plan.train.chunks.size()); ++chunk) items.chunk(chunk);
  items.take(plan);
}

std::string gradient_name(const std::string& tensor) { return "gradient of " + tensor; }
}  // namespace plait::parallel
