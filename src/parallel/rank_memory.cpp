#include "parallel/rank_memory.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"
#include "ops/op_context.h"
#include "parallel/program_waits.h"

namespace plait::parallel {
namespace {

// Instructions between which each buffer holds something, in program order. Memory may be shared by what the compute stream
// uses at different times. What another stream does lies for it between the last instruction of the compute stream that is sure
// to have run before, and the first that begins only after it; where there is none in the step, memory is not shared.
//
// A rank's programs use the same memory, never at the same time: their instructions are counted on, one program after the
// other.
class LifetimeTable {
 public:
  LifetimeTable(const Program& train, const Program& evaluate, const std::vector<Bucket>& buckets) {
    add(train, buckets);
    add(evaluate, buckets);
  }

  bool has(const BufferId& buffer) const { return buffers_.contains(buffer); }
  // Ascending and apart; empty: always live. Anything never used would count as always live, so it is refused.
  std::vector<Lifetime> of(const BufferId& buffer) const {
    const auto it = buffers_.find(buffer);
    require(it != buffers_.end(), "LifetimeTable: nothing in the program writes the " + to_string(buffer));
    if (it->second.always) return {};
    std::vector<Lifetime> merged;
    for (const Lifetime& l : it->second.lifetimes) {
      if (!merged.empty() && l.first <= merged.back().last) {
        merged.back().last = std::max(merged.back().last, l.last);
      } else {
        merged.push_back(l);
      }
    }
    return merged;
  }

 private:
  struct Buffer {
    std::vector<Lifetime> lifetimes;
    bool always = false;
  };

  void add(const Program& program, const std::vector<Bucket>& buckets);

  std::map<BufferId, Buffer> buffers_;
  int counted_ = 0;  // instructions of the programs so far
};

// Of each instruction; nothing where memory cannot be shared.
std::vector<std::optional<Lifetime>> spans_of(const Program& program) {
  constexpr int compute = 0;
  const ProgramOrder order(program);
  const int count = order.count();
  const auto on_compute = [&](int n) { return program.at(n).stream == compute; };
  int last_compute = -1;
  for (int n = 0; n < count; ++n) last_compute = on_compute(n) ? n : last_compute;
  std::vector<std::optional<Lifetime>> spans(static_cast<std::size_t>(count));
  std::vector<std::vector<int>> unended(program.streams.size());  // what no instruction of the compute stream has waited for
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
    // All of the step before has run then; else some of it may go on beside.
    if (before >= 0 || before == last_compute - count) span = {std::max(before, 0), n};
  }
  for (const std::vector<int>& list : unended) {
    for (const int n : list) spans[static_cast<std::size_t>(n)].reset();
  }
  return spans;
}

// Whether this use of a buffer is the first of a new micro-batch.
bool begins(const BufferUse& use, const Instruction& i) {
  if (!use.writes) return false;
  switch (use.buffer.kind) {
    case BufferKind::activations:
    case BufferKind::product:
    case BufferKind::statistics: return i.kind == InstructionKind::forward;
    case BufferKind::norm:
    case BufferKind::norm_again:
    case BufferKind::output: return true;
    case BufferKind::stash:
    case BufferKind::norm_gradient: return i.kind == InstructionKind::backward_input;
    case BufferKind::output_gradient: return true;
    default: return false;
  }
}

void LifetimeTable::add(const Program& program, const std::vector<Bucket>& buckets) {
  const std::vector<std::optional<Lifetime>> spans = spans_of(program);
  std::set<BufferId> begun;
  for (int n = 0; n < static_cast<int>(spans.size()); ++n) {
    const Instruction& i = program.at(n);
    for (const BufferUse& use : buffer_uses(program, i, buckets)) {
      const bool new_here = begins(use, i);
      if (new_here) begun.insert(use.buffer);
      if (!new_here && !begun.contains(use.buffer)) continue;
      Buffer& buffer = buffers_[use.buffer];
      const std::optional<Lifetime>& span = spans[static_cast<std::size_t>(n)];
      if (!span) {
        buffer.always = true;
        continue;
      }
      const Lifetime used{span->first + counted_, span->last + counted_};
      if (new_here || buffer.lifetimes.empty()) {
        buffer.lifetimes.push_back(used);
      } else {
        Lifetime& last = buffer.lifetimes.back();
        last = {std::min(last.first, used.first), std::max(last.last, used.last)};
      }
    }
  }
  counted_ += static_cast<int>(spans.size());
}

class MemoryItems {
 public:
  explicit MemoryItems(const RankPlan& plan) : plan_(plan), table_(plan.train, plan.evaluate, plan.flat.buckets()) {}

  MemoryPlan take() {
    for (auto& [name, item] : scratch_) {
      std::sort(item.lifetimes.begin(), item.lifetimes.end());
      item.lifetimes.erase(std::unique(item.lifetimes.begin(), item.lifetimes.end()), item.lifetimes.end());
      items_.push_back(std::move(item));
    }
    return MemoryPlan(std::move(items_));
  }

  void always(std::string name, std::string kind, std::size_t bytes) {
    items_.push_back({std::move(name), std::move(kind), bytes, {}, 0});
  }

  void state() {
    const FlatLayout& flat = plan_.flat;
    const auto bytes = [](std::int64_t elements, DType type) { return static_cast<std::size_t>(elements) * size_of(type); };
    const std::size_t state_bytes = bytes(flat.state_elements(), plan_.master_type);
    always("weights", "weights", bytes(flat.elements(), plan_.sizes.compute));
    always("gradients", "gradients", bytes(flat.whole_gradient_elements(), plan_.gradient_type));
    if (plan_.zero > 1) always("gradient_sums", "gradients", bytes(flat.kept_gradient_elements(), plan_.gradient_type));
    if (plan_.separate_master) always("master", "optimizer", state_bytes);
    always("exp_avg", "optimizer", state_bytes);
    always("exp_avg_sq", "optimizer", state_bytes);
    always("adamw_table", "constants", ops::adamw_table_bytes(flat.adamw_ranges()));
    always("scalars", "constants", 2 * size_of(plan_.scalar_type()));
    always("evaluation_loss", "constants", size_of(plan_.scalar_type()));
    if (plan_.meets()) always("arrival", "constants", size_of(plan_.scalar_type()));
    always("optimizer_state", "constants", sizeof(ops::OptimizerState));
  }

  void per_rank() {
    const model::ModelShape s = plan_.local_shape();
    const model::MicroBatchShape& mb = plan_.sizes.micro_batch;
    if (s.position == model::Position::rope) {
      always("rope_table", "constants", static_cast<std::size_t>(mb.sequence * s.head_dim) * size_of(plan_.scalar_type()));
    }
    const ops::AttentionShape attention{mb.batch, mb.sequence, s.heads, s.kv_heads, s.head_dim};
    always("op_workspace", "workspace",
           ops::workspace_bytes(plan_.device_kind, {attention, plan_.sizes.compute, plan_.deterministic}));
    if (plan_.train.several) always("exchange_workspace", "workspace", ops::norm_workspace_bytes(plan_.sizes.shape.hidden));
    for (int slot = 0; slot < plan_.train.batch_slots; ++slot) {
      always("tokens " + std::to_string(slot), "batch", static_cast<std::size_t>(mb.rows()) * 4);
      always("targets " + std::to_string(slot), "batch", static_cast<std::size_t>(mb.rows()) * 4);
    }
  }

  void received() {
    if (const std::size_t bytes = plan_.landing_bytes(); bytes > 0) {
      always("exchange landing", "messages", bytes);
      items_.back().received = true;
    }
    for (const ReceivedBuffer& buffer : received_buffers(plan_)) {
      always(message_item(buffer.buffer), "messages",
             static_cast<std::size_t>(buffer.shape.elements()) * size_of(plan_.sizes.compute));
      items_.back().received = true;
    }
  }

  void lanes() {
    const model::SegmentSizes& sizes = plan_.sizes;
    const auto rows = static_cast<std::size_t>(sizes.micro_batch.rows());
    const std::size_t whole = rows * static_cast<std::size_t>(sizes.shape.hidden) * size_of(sizes.compute);
    const auto has = [&](BufferKind kind, int lane, std::size_t bytes) {
      const BufferId buffer{kind, lane, 0};
      if (!table_.has(buffer)) return;
      items_.push_back({lane_item(buffer), "exchanges", bytes, table_.of(buffer), 0});
    };
    const auto holds = [&](auto&& is) {
      for (int segment = 0; segment < sizes.shape.segments(); ++segment) {
        if (plan_.holds(segment) && is(sizes.shape.kind(segment))) return true;
      }
      return false;
    };
    for (int lane = 0; lane < plan_.train.lanes; ++lane) {
      if (holds(model::has_norm)) has(BufferKind::norm_gradient, lane, whole);
      if (!plan_.train.several) continue;
      if (holds(model::has_output)) has(BufferKind::product, lane, whole);
      if (holds(model::reads_targets))
        has(BufferKind::statistics, lane, static_cast<std::size_t>(sizes.split.size) * rows * 3 * size_of(plan_.scalar_type()));
    }
  }

  void chunk(int index) {
    const Chunk& c = plan_.train.chunks[static_cast<std::size_t>(index)];
    const std::size_t row_bytes = static_cast<std::size_t>(plan_.sizes.shape.hidden) * size_of(plan_.sizes.compute);
    const std::size_t own = static_cast<std::size_t>(plan_.sizes.own_rows()) * row_bytes;
    for (int slot = 0; slot < c.gradient_out_slots; ++slot)
      always(message_item({BufferKind::sent_gradient, index, slot}), "messages", own);
    for (int segment = c.first_segment; segment < c.end_segment; ++segment) {
      norm(c, segment);
      activations_and_stash(c, segment);
    }
  }

 private:
  void norm(const Chunk& c, int segment) {
    for (const model::TensorSpec& spec : model::norm_specs(plan_.sizes, segment)) {
      for (int slot = 0; slot < c.activation_slots; ++slot) {
        items_.push_back({activation_item(segment, slot, spec.name), "activations", spec.bytes(),
                          table_.of({BufferKind::norm, segment, slot}), 0});
      }
      if (!plan_.recomputes_norm(segment)) continue;
      for (int stash = 0; stash < c.stash_slots; ++stash) {
        items_.push_back({stash_item(segment, stash, spec.name), "activations", spec.bytes(),
                          table_.of({BufferKind::norm_again, segment, stash}), 0});
      }
    }
  }

  void activations_and_stash(const Chunk& c, int segment) {
    const bool received = segment == c.last_segment() && c.next_rank >= 0;
    const bool has_backward_input = model::has_norm(plan_.sizes.shape.kind(segment));
    for (const model::TensorSpec& spec : model::activation_specs(plan_.sizes, segment)) {
      if (spec.keep == model::Keep::scratch) {
        // Computed in forward for the moment, and again in backward_input, where backward_weight needs it as well.
        for (int slot = 0; slot < c.activation_slots; ++slot) {
          for (const Lifetime& l : table_.of({BufferKind::activations, segment, slot})) scratch(spec, l.first);
        }
        if (has_backward_input) each_stash(c, segment, spec);
        continue;
      }
      const bool output = spec.role == model::TensorRole::output;
      for (int slot = 0; slot < c.activation_slots; ++slot) {
        const BufferId buffer{output ? BufferKind::output : BufferKind::activations, segment, slot};
        items_.push_back({activation_item(segment, slot, spec.name), "activations", spec.bytes(), table_.of(buffer), 0});
      }
    }
    for (model::TensorSpec spec : model::gradient_specs(plan_.sizes, segment)) {
      spec.name = gradient_name(spec.name);
      if (spec.role == model::TensorRole::output) {
        if (received) continue;
        for (int stash = 0; stash < c.stash_slots; ++stash) {
          items_.push_back({stash_item(segment, stash, spec.name), "gradients of activations", spec.bytes(),
                            table_.of({BufferKind::output_gradient, segment, stash}), 0});
        }
      } else if (spec.keep == model::Keep::scratch) {
        for (int stash = 0; stash < c.stash_slots; ++stash) {
          for (const Lifetime& l : table_.of({BufferKind::stash, segment, stash})) scratch(spec, l.first);
        }
      } else {
        each_stash(c, segment, spec);
      }
    }
  }

  void each_stash(const Chunk& c, int segment, const model::TensorSpec& spec) {
    for (int stash = 0; stash < c.stash_slots; ++stash) {
      items_.push_back({stash_item(segment, stash, spec.name), "gradients of activations", spec.bytes(),
                        table_.of({BufferKind::stash, segment, stash}), 0});
    }
  }

  // One place for all segments.
  void scratch(const model::TensorSpec& spec, int at) {
    MemoryItem& item = scratch_.try_emplace(spec.name, MemoryItem{scratch_item(spec.name), "scratch", 0, {}, 0}).first->second;
    item.bytes = std::max(item.bytes, spec.bytes());
    item.lifetimes.push_back({at, at});  // in no order yet
  }

  const RankPlan& plan_;
  LifetimeTable table_;
  std::vector<MemoryItem> items_;
  std::map<std::string, MemoryItem> scratch_;
};

}  // namespace

MemoryPlan plan_memory(const RankPlan& plan) {
  MemoryItems items(plan);
  items.state();
  items.per_rank();
  items.received();
  items.lanes();
  for (int chunk = 0; chunk < static_cast<int>(plan.train.chunks.size()); ++chunk) items.chunk(chunk);
  return items.take();
}

std::string activation_item(int segment, int slot, const std::string& tensor) {
  return "segment " + std::to_string(segment) + " slot " + std::to_string(slot) + " " + tensor;
}
std::string stash_item(int segment, int stash, const std::string& tensor) {
  return "segment " + std::to_string(segment) + " stash " + std::to_string(stash) + " " + tensor;
}
std::string scratch_item(const std::string& tensor) { return "scratch " + tensor; }
std::string gradient_name(const std::string& tensor) { return "gradient of " + tensor; }
std::string lane_item(const BufferId& buffer) { return to_string(buffer); }
std::string message_item(const BufferId& buffer) {
  const auto name = [&](const char* what) {
    return std::string(what) + " chunk " + std::to_string(buffer.index) + " slot " + std::to_string(buffer.slot);
  };
  switch (buffer.kind) {
    case BufferKind::input: return name("message input");
    case BufferKind::received_gradient: return name("message gradient_in");
    case BufferKind::sent_gradient: return name("message gradient_out");
    default: throw InternalError("message_item: no message is in the " + to_string(buffer));
  }
}

}  // namespace plait::parallel
