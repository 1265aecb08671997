#include "parallel/rank_plan.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "ops/op_context.h"

namespace plait::parallel {
namespace {

DType compute_type(const Config& config, DeviceKind kind) {
  const std::string& name = config.precision.compute;
  const DType type = name == "auto" ? (kind == DeviceKind::cuda ? DType::bf16 : DType::f32) : dtype_from(name);
  if (type == DType::f64 && kind == DeviceKind::cuda) {
    throw ConfigError({{"precision.compute", name, "fp64 runs on CPUs only; set launch.device=cpu, or use fp32 or bf16", "", 0}});
  }
  return type;
}

// comm.bucket_mb in bytes.
std::int64_t bucket_bytes(const Config& config, const std::vector<model::Parameter>& parameters, DType gradient_type) {
  constexpr std::int64_t mebibyte = 1024 * 1024;
  if (config.comm.bucket_mb > 0) return static_cast<std::int64_t>(config.comm.bucket_mb * static_cast<double>(mebibyte));
  std::int64_t elements = 0;
  for (const model::Parameter& p : parameters) elements += p.shape.elements();
  return std::clamp(elements * static_cast<std::int64_t>(size_of(gradient_type)) / 16, 25 * mebibyte, 200 * mebibyte);
}

// Lifetimes of everything that comes and goes, read off the program: what each instruction touches, in compute-stream order.
class LifetimeTable {
 public:
  void use(const std::string& name, int first, int last) { lifetimes_[name].push_back({first, last}); }

  // Merged and ascending. Anything never used gets an empty list and would count as always live, so it is refused.
  std::vector<Lifetime> of(const std::string& name) const {
    const auto it = lifetimes_.find(name);
    require(it != lifetimes_.end(), "LifetimeTable: nothing in the program uses '" + name + "'");
    std::vector<Lifetime> sorted = it->second;
    std::sort(sorted.begin(), sorted.end(), [](const Lifetime& a, const Lifetime& b) { return a.first < b.first; });
    std::vector<Lifetime> merged;
    for (const Lifetime& next : sorted) {
      if (!merged.empty() && next.first <= merged.back().last + 1) {
        merged.back().last = std::max(merged.back().last, next.last);
      } else {
        merged.push_back(next);
      }
    }
    return merged;
  }

 private:
  std::map<std::string, std::vector<Lifetime>> lifetimes_;
};

struct BlockRun {
  int forward = -1, backward_input = -1, backward_weight = -1, slot = 0, gradient_in = -1, gradient_out = -1;
};

// One entry per (micro-batch, block) of the program.
std::map<std::pair<int, int>, BlockRun> block_runs(const Program& program) {
  std::map<std::pair<int, int>, BlockRun> runs;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.block < 0) continue;
    BlockRun& run = runs[{instruction.micro_batch, instruction.block}];
    const int index = static_cast<int>(i);
    run.slot = instruction.activation_slot;
    if (instruction.kind == InstructionKind::forward) run.forward = index;
    if (instruction.kind == InstructionKind::backward_input) run.backward_input = index;
    if (instruction.kind == InstructionKind::backward_weight) run.backward_weight = index;
    if (instruction.kind != InstructionKind::forward) {
      run.gradient_in = instruction.gradient_in;
      run.gradient_out = instruction.gradient_out;
    }
  }
  return runs;
}

LifetimeTable lifetimes(const RankPlan& plan) {
  LifetimeTable table;
  const model::TransformerOptions& m = plan.model;
  const int head = m.shape.head_block();
  const auto runs = block_runs(plan.train);
  const auto gradient_specs = model::gradient_specs(m.shape, m.micro_batch, m.compute);
  for (const auto& [key, run] : runs) {
    const auto [micro_batch, block] = key;
    for (const model::TensorSpec& spec : model::activation_specs(m.shape, m.micro_batch, m.compute, m.recompute, block)) {
      if (spec.keep == model::Keep::scratch) {
        table.use("scratch " + spec.name, run.forward, run.forward);
        table.use("scratch " + spec.name, run.backward_input, run.backward_weight);
      } else if (spec.name == "output") {
        // The next block reads its input for the last time in its backward_input.
        table.use(activation_item(block, run.slot, spec.name), run.forward, runs.at({micro_batch, block + 1}).backward_input);
      } else {
        table.use(activation_item(block, run.slot, spec.name), run.forward, run.backward_weight);
      }
    }
    if (block > 0) {
      for (const model::TensorSpec& spec : gradient_specs) {
        if (block == head && spec.name != "narrow") continue;
        table.use("gradient " + spec.name, run.backward_input,
                  spec.keep == model::Keep::scratch ? run.backward_input : run.backward_weight);
      }
      table.use("residual gradient " + std::to_string(run.gradient_out), run.backward_input,
                runs.at({micro_batch, block - 1}).backward_weight);
    }
  }
  return table;
}

MemoryPlan plan_memory(const RankPlan& plan) {
  const LifetimeTable table = lifetimes(plan);
  const model::TransformerOptions& m = plan.model;
  std::vector<MemoryItem> items;
  const auto always = [&](std::string name, std::string kind, std::size_t bytes) {
    items.push_back({std::move(name), std::move(kind), bytes, {}, 0});
  };
  const auto elements = static_cast<std::size_t>(plan.flat.elements());
  const std::size_t state_bytes = static_cast<std::size_t>(plan.state_elements()) * size_of(plan.master_type);
  always("weights", "weights", elements * size_of(m.compute));
  always("gradients", "gradients", elements * size_of(plan.gradient_type));
  if (plan.separate_master) always("master", "optimizer", state_bytes);
  always("exp_avg", "optimizer", state_bytes);
  always("exp_avg_sq", "optimizer", state_bytes);
  const int data_rank = plan.coordinates().data;
  always("adamw_table", "constants", ops::adamw_table(plan.flat.adamw_segments(data_rank, plan.sharded)).size());
  always("scalars", "constants", 2 * size_of(plan.scalar_type()));
  always("evaluation_loss", "constants", size_of(plan.scalar_type()));
  always("optimizer_state", "constants", sizeof(ops::OptimizerState));
  if (m.shape.position == model::Position::rope) {
    always("rope_table", "constants", static_cast<std::size_t>(m.micro_batch.sequence * m.shape.head_dim) * size_of(plan.scalar_type()));
  }
  const model::ModelShape& s = m.shape;
  const ops::AttentionShape attention{m.micro_batch.batch, m.micro_batch.sequence, s.heads, s.kv_heads, s.head_dim};
  always("op_workspace", "workspace",
         ops::workspace_bytes(plan.device_kind, {attention, m.compute, plan.deterministic}));
  for (int slot = 0; slot < plan.train.batch_slots; ++slot) {
    always("tokens " + std::to_string(slot), "batch", static_cast<std::size_t>(m.micro_batch.rows()) * 4);
    always("targets " + std::to_string(slot), "batch", static_cast<std::size_t>(m.micro_batch.rows()) * 4);
  }

  std::map<std::string, std::size_t> scratch;
  for (int block = 0; block < m.shape.blocks(); ++block) {
    for (const model::TensorSpec& spec : model::activation_specs(m.shape, m.micro_batch, m.compute, m.recompute, block)) {
      if (spec.keep == model::Keep::scratch) {
        scratch["scratch " + spec.name] = spec.bytes();
        continue;
      }
      for (int slot = 0; slot < plan.train.activation_slots; ++slot) {
        const std::string name = activation_item(block, slot, spec.name);
        items.push_back({name, "activations", spec.bytes(), table.of(name), 0});
      }
    }
  }
  for (const model::TensorSpec& spec : model::gradient_specs(m.shape, m.micro_batch, m.compute)) {
    scratch["gradient " + spec.name] = spec.bytes();
  }
  for (int slot = 0; slot < plan.train.gradient_slots; ++slot) {
    scratch["residual gradient " + std::to_string(slot)] =
        static_cast<std::size_t>(m.micro_batch.rows() * m.shape.hidden) * size_of(m.compute);
  }
  for (const auto& [name, bytes] : scratch) items.push_back({name, "scratch", bytes, table.of(name), 0});
  return MemoryPlan(std::move(items));
}

}  // namespace

std::string activation_item(int block, int slot, const std::string& tensor) {
  return "block " + std::to_string(block) + " slot " + std::to_string(slot) + " " + tensor;
}

RankPlan make_rank_plan(const Config& config, std::int64_t vocab, const Layout& layout, int rank, DeviceKind device_kind) {
  const std::int64_t micro_batch = config.train.micro_batch;
  const std::int64_t per_round = micro_batch * layout.data;
  if (config.train.global_batch % per_round != 0) {
    throw ConfigError({{"train.global_batch", std::to_string(config.train.global_batch),
                        "must be a multiple of train.micro_batch × data-parallel ranks = " + std::to_string(micro_batch) + " × " +
                            std::to_string(layout.data),
                        "", 0}});
  }
  const DType compute = compute_type(config, device_kind);
  DType gradients = dtype_from(config.precision.gradients);
  if (compute == DType::f64) gradients = DType::f64;
  if (gradients == DType::bf16 && compute != DType::bf16) {
    throw ConfigError({{"precision.gradients", config.precision.gradients, "bf16 gradients need bf16 compute", "", 0}});
  }

  const model::ModelShape shape = model::resolve_shape(config.model, vocab, config.data.sequence_length);
  std::vector<model::Parameter> parameters = model::parameters(shape);
  FlatLayout flat(parameters, layout.data, bucket_bytes(config, parameters, gradients), gradients);

  RankPlan plan{.layout = layout,
                .rank = rank,
                .device_kind = device_kind,
                .model = {.shape = shape,
                          .micro_batch = {micro_batch, config.data.sequence_length},
                          .compute = compute,
                          .recompute = model::recompute_from(config.parallel.recompute)},
                .gradient_type = gradients,
                .master_type = compute == DType::f64 ? DType::f64 : DType::f32,
                .deterministic = config.precision.deterministic,
                .sharded = config.parallel.zero >= 1,
                .separate_master = true,
                .micro_batches = static_cast<int>(config.train.global_batch / per_round),
                .global_batch = config.train.global_batch,
                .parameters = std::move(parameters),
                .flat = std::move(flat),
                .train = {},
                .evaluate = {},
                .memory = {}};
  plan.separate_master = plan.sharded || plan.master_type != plan.model.compute;
  plan.train = data_parallel_program({.blocks = shape.blocks(),
                                      .micro_batches = plan.micro_batches,
                                      .buckets = plan.flat.buckets(),
                                      .sharded = plan.sharded,
                                      .overlap = config.comm.overlap});
  plan.evaluate = evaluation_program(shape.blocks());
  plan.memory = plan_memory(plan);
  return plan;
}

}  // namespace plait::parallel
