#include "parallel/interpreter.h"

#include <algorithm>
#include <thread>

#include "core/error.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/rope.h"

namespace plait::parallel {
namespace {

constexpr std::size_t staging_bytes = std::size_t{64} << 20;

// One more than may be pending: a step's time is measured from the end of the step before it, whose slot must still be its.
constexpr int step_slots = Interpreter::results_in_flight + 1;

// Instructions of the compute stream that wait for the reduce stream: where communication can be exposed.
bool may_expose(const Program& program, const Instruction& instruction) {
  if (instruction.stream != StreamRole::compute) return false;
  return std::any_of(instruction.waits.begin(), instruction.waits.end(), [&](int w) {
    return program.instructions[static_cast<std::size_t>(w)].stream == StreamRole::reduce;
  });
}

}  // namespace

// What the host learns of one step, and the events that tell when.
struct Interpreter::Pending {
  ops::OptimizerState* state;  // pinned
  Event done;                  // timed, end of the step on the compute stream
  std::vector<std::pair<Event, Event>> exposed;  // around each wait for communication
  std::int64_t update = 0;
  std::optional<std::size_t> previous;  // slot of the step before, if its `done` still holds that step's time
};

Interpreter::Interpreter(RankPlan plan, DeviceMemory& memory, comm::Communicator& data_group)
    : plan_(std::move(plan)), memory_(memory), data_group_(data_group) {
  const Device device = memory_.device();
  require(device.kind == plan_.device_kind, "Interpreter: the plan is for another kind of device");
  require(data_group_.size() == plan_.layout.data && data_group_.rank() == plan_.coordinates().data,
          "Interpreter: the communicator is not the plan's data group");
  arena_ = memory_.allocate(plan_.memory.total_bytes());
  pinned_ = memory_.allocate(staging_bytes + step_slots * sizeof(ops::OptimizerState), MemoryKind::pinned_host);
  streams_[static_cast<std::size_t>(StreamRole::compute)].emplace(device);
  streams_[static_cast<std::size_t>(StreamRole::copy)].emplace(device, StreamPriority::high);
  streams_[static_cast<std::size_t>(StreamRole::reduce)].emplace(device, StreamPriority::high);
  const auto workspace_bytes = static_cast<std::int64_t>(plan_.memory.find("op_workspace").bytes);
  context_ = ops::make_op_context(device, item("op_workspace", DType::u8, {workspace_bytes}), {.deterministic = plan_.deterministic});
  bind_memory();
  fill_constants();
  prepare(plan_.train, train_events_);
  prepare(plan_.evaluate, evaluate_events_);

  const auto exposing = std::count_if(plan_.train.instructions.begin(), plan_.train.instructions.end(),
                                      [&](const Instruction& i) { return may_expose(plan_.train, i); });
  auto* states = reinterpret_cast<ops::OptimizerState*>(static_cast<char*>(pinned_.data()) + staging_bytes);
  for (int i = 0; i < step_slots; ++i) {
    Pending slot{states + i, Event(device, EventTiming::on), {}, 0, std::nullopt};
    for (std::ptrdiff_t e = 0; e < exposing; ++e) {
      slot.exposed.emplace_back(Event(device, EventTiming::on), Event(device, EventTiming::on));
    }
    slots_.push_back(std::move(slot));
  }
}

Interpreter::~Interpreter() = default;

StreamRef Interpreter::stream(StreamRole role) const { return streams_[static_cast<std::size_t>(role)]->ref(); }

View Interpreter::item(const std::string& name, DType type, Shape shape) const {
  const MemoryItem& found = plan_.memory.find(name);
  View view(static_cast<char*>(arena_.data()) + found.offset, type, shape);
  require(view.bytes() <= found.bytes, "Interpreter: '" + name + "' is larger than planned");
  return view;
}

View Interpreter::slice(View flat, Range range) const { return flat.rows(range.first, range.count); }

void Interpreter::bind_memory() {
  const model::TransformerOptions& m = plan_.model;
  const Shape flat{plan_.flat.elements()};
  const Shape state{plan_.state_elements()};
  weights_ = item("weights", m.compute, flat);
  gradients_ = item("gradients", plan_.gradient_type, flat);
  master_ = plan_.separate_master ? item("master", plan_.master_type, state) : weights_;
  exp_avg_ = item("exp_avg", plan_.master_type, state);
  exp_avg_sq_ = item("exp_avg_sq", plan_.master_type, state);
  scalars_ = item("scalars", plan_.scalar_type(), {2});
  evaluation_loss_ = item("evaluation_loss", plan_.scalar_type(), {1});
  optimizer_state_ = item("optimizer_state", DType::f32, {static_cast<std::int64_t>(sizeof(ops::OptimizerState) / 4)});

  std::vector<View> weight_views, gradient_views;
  for (std::size_t i = 0; i < plan_.parameters.size(); ++i) {
    const Range range = plan_.flat.parameter(i);
    weight_views.push_back(slice(weights_, range).reshaped(plan_.parameters[i].shape));
    gradient_views.push_back(slice(gradients_, range).reshaped(plan_.parameters[i].shape));
  }
  block_weights_ = model::bind_parameters(m.shape, plan_.parameters, weight_views);
  block_gradients_ = model::bind_parameters(m.shape, plan_.parameters, gradient_views);

  const auto memory_of = [&](const std::string& name) {
    return static_cast<void*>(static_cast<char*>(arena_.data()) + plan_.memory.find(name).offset);
  };
  for (int block = 0; block < m.shape.blocks(); ++block) {
    const auto specs = model::activation_specs(m.shape, m.micro_batch, m.compute, m.recompute, block);
    std::vector<model::BlockActivations> slots;
    for (int slot = 0; slot < plan_.train.activation_slots; ++slot) {
      std::vector<void*> memory;
      for (const model::TensorSpec& spec : specs) {
        memory.push_back(memory_of(spec.keep == model::Keep::scratch ? "scratch " + spec.name
                                                                     : activation_item(block, slot, spec.name)));
      }
      slots.push_back(model::bind_activations(specs, memory));
    }
    activations_.push_back(std::move(slots));
  }
  const auto gradient_specs = model::gradient_specs(m.shape, m.micro_batch, m.compute);
  std::vector<void*> gradient_memory;
  for (const model::TensorSpec& spec : gradient_specs) gradient_memory.push_back(memory_of("gradient " + spec.name));
  block_scratch_ = model::bind_gradients(gradient_specs, gradient_memory);

  const Shape residual{m.micro_batch.rows(), m.shape.hidden};
  for (int slot = 0; slot < plan_.train.gradient_slots; ++slot) {
    residual_gradients_.push_back(item("residual gradient " + std::to_string(slot), m.compute, residual));
  }
  for (int slot = 0; slot < plan_.train.batch_slots; ++slot) {
    batch_slots_.push_back({item("tokens " + std::to_string(slot), DType::i32, {m.micro_batch.rows()}),
                            item("targets " + std::to_string(slot), DType::i32, {m.micro_batch.rows()})});
  }

  std::vector<Range> ranges;
  for (const Bucket& bucket : plan_.flat.buckets()) {
    const Range owned = plan_.flat.shard(bucket, plan_.coordinates().data);
    if (!ranges.empty() && ranges.back().end() == owned.first) {
      ranges.back().count += owned.count;
    } else {
      ranges.push_back(owned);
    }
  }
  for (const Range& range : ranges) norm_ranges_.push_back(slice(gradients_, range));
}

void Interpreter::fill_constants() {
  const StreamRef s = compute_stream();
  const model::TransformerOptions& m = plan_.model;
  const std::vector<std::uint8_t> table = ops::adamw_table(plan_.flat.adamw_segments(plan_.coordinates().data, plan_.sharded));
  table_ = item("adamw_table", DType::u8, {static_cast<std::int64_t>(table.size())});
  s.copy(table_.data, table.data(), table.size());
  s.synchronize();
  View rope;
  if (m.shape.position == model::Position::rope) {
    rope = item("rope_table", plan_.scalar_type(), {m.micro_batch.sequence, m.shape.head_dim});
    std::vector<std::uint8_t> host(rope.bytes());
    ops::rope_table(m.shape.rope_base, View(host.data(), rope.dtype, rope.shape));
    s.copy(rope.data, host.data(), host.size());
    s.synchronize();
  }
  transformer_.emplace(m, rope);
  s.zero(optimizer_state_.data, optimizer_state_.bytes());
  s.zero(weights_.data, weights_.bytes());
  s.zero(gradients_.data, gradients_.bytes());
  s.zero(master_.data, master_.bytes());
  s.zero(exp_avg_.data, exp_avg_.bytes());
  s.zero(exp_avg_sq_.data, exp_avg_sq_.bytes());
  s.synchronize();
}

void Interpreter::prepare(const Program& program, std::vector<std::optional<Event>>& events) {
  events.clear();
  events.resize(program.instructions.size());
  for (const Instruction& instruction : program.instructions) {
    for (const int awaited : instruction.waits) {
      std::optional<Event>& event = events[static_cast<std::size_t>(awaited)];
      if (!event) event.emplace(memory_.device());
    }
  }
}

void Interpreter::initialize(std::uint64_t seed) {
  // Each piece is drawn by element index, so threads and ranks may split them in any way.
  const StreamRef s = compute_stream();
  const std::int64_t chunk = static_cast<std::int64_t>(staging_bytes / sizeof(double) / 2);
  auto* floats = static_cast<float*>(pinned_.data());
  auto* doubles = reinterpret_cast<double*>(floats + chunk);
  const auto threads = static_cast<std::int64_t>(std::max(1u, std::thread::hardware_concurrency() / static_cast<unsigned>(plan_.layout.ranks())));
  for (const FlatLayout::StatePiece& piece : plan_.flat.state_pieces(plan_.coordinates().data, plan_.sharded)) {
    const model::Parameter& parameter = plan_.parameters[piece.parameter];
    for (std::int64_t done = 0; done < piece.count; done += chunk) {
      const std::int64_t count = std::min(chunk, piece.count - done);
      const std::int64_t per_thread = std::max<std::int64_t>(1 << 14, (count + threads - 1) / threads);
      std::vector<std::jthread> workers;
      for (std::int64_t first = 0; first < count; first += per_thread) {
        const auto size = static_cast<std::size_t>(std::min(per_thread, count - first));
        workers.emplace_back([&parameter, &piece, seed, floats, done, first, size] {
          model::initial_values(parameter, seed, piece.parameter_first + done + first, {floats + first, size});
        });
      }
      workers.clear();  // joins
      const View target = slice(master_, {piece.state_first + done, count});
      if (plan_.master_type == DType::f64) {
        std::copy(floats, floats + count, doubles);
        s.copy(target.data, doubles, target.bytes());
      } else {
        s.copy(target.data, floats, target.bytes());
      }
      s.synchronize();
    }
  }
  publish_weights();
}

void Interpreter::publish_weights() {
  const StreamRef s = compute_stream();
  if (plan_.separate_master) {
    std::int64_t state_first = 0;
    for (const Bucket& bucket : plan_.flat.buckets()) {
      const Range owned = plan_.sharded ? plan_.flat.shard(bucket, plan_.coordinates().data) : bucket.range;
      ops::convert(s, slice(master_, {state_first, owned.count}), slice(weights_, owned));
      state_first += owned.count;
      if (plan_.sharded) data_group_.all_gather(s, slice(weights_, owned), slice(weights_, bucket.range));
    }
  }
  synchronize();
}

void Interpreter::synchronize() {
  for (const auto& s : streams_) s->ref().synchronize();
}

View Interpreter::block_input(const Instruction& instruction) {
  if (instruction.block == 0) return {};
  return activations_[static_cast<std::size_t>(instruction.block) - 1][static_cast<std::size_t>(instruction.activation_slot)].output;
}

model::Transformer::Backward Interpreter::backward_arguments(const Instruction& i) {
  const auto block = static_cast<std::size_t>(i.block);
  return {.block = i.block,
          .weights = &block_weights_[block],
          .weight_gradients = &block_gradients_[block],
          .batch = batch_slots_[static_cast<std::size_t>(i.batch_slot)],
          .input = block_input(i),
          .activations = &activations_[block][static_cast<std::size_t>(i.activation_slot)],
          .gradients = &block_scratch_,
          .output_gradient = i.gradient_in < 0 ? View() : residual_gradients_[static_cast<std::size_t>(i.gradient_in)],
          .input_gradient = i.gradient_out < 0 ? View() : residual_gradients_[static_cast<std::size_t>(i.gradient_out)],
          .accumulate = i.accumulate};
}

template <typename Observer>
void Interpreter::execute(const Program& program, std::vector<std::optional<Event>>& events, BatchSource& batches,
                          const UpdateSettings& settings, bool train, bool accumulate, Observer observe) {
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    const Instruction& instruction = program.instructions[n];
    const StreamRef s = stream(instruction.stream);
    observe(n, Moment::waiting);
    for (const int awaited : instruction.waits) s.wait(*events[static_cast<std::size_t>(awaited)]);
    observe(n, Moment::started);
    issue(instruction, batches, settings, train, accumulate || instruction.accumulate);
    observe(n, Moment::done);
    if (events[n]) s.record(*events[n]);
  }
}

void Interpreter::issue(const Instruction& i, BatchSource& batches, const UpdateSettings& settings, bool train, bool accumulate) {
  const StreamRef s = stream(i.stream);
  const auto block = static_cast<std::size_t>(std::max(i.block, 0));
  const auto bucket = [&] { return plan_.flat.buckets()[static_cast<std::size_t>(i.bucket)]; };
  switch (i.kind) {
    case InstructionKind::load_batch: {
      const model::Batch& slot = batch_slots_[static_cast<std::size_t>(i.batch_slot)];
      const HostBatch host = batches.next();
      s.copy(slot.tokens.data, host.tokens, slot.tokens.bytes());
      s.copy(slot.targets.data, host.targets, slot.targets.bytes());
      batches.release(s);
      return;
    }
    case InstructionKind::forward: {
      const auto tokens = static_cast<double>(plan_.global_batch * plan_.model.micro_batch.sequence);
      model::BlockActivations& activations = activations_[block][static_cast<std::size_t>(i.activation_slot)];
      transformer_->forward(s, *context_,
                            {.block = i.block,
                             .weights = &block_weights_[block],
                             .batch = batch_slots_[static_cast<std::size_t>(i.batch_slot)],
                             .input = block_input(i),
                             .activations = &activations,
                             .train = train,
                             .loss_scale = static_cast<float>(1.0 / tokens)});
      if (i.block == plan_.model.shape.head_block()) {
        const View loss = train ? scalars_.rows(1, 1) : evaluation_loss_;
        ops::sum(s, *context_, activations.losses, loss, static_cast<float>(1.0 / tokens), accumulate);
      }
      return;
    }
    case InstructionKind::backward_input:
      transformer_->backward_input(s, *context_, backward_arguments(i));
      return;
    case InstructionKind::backward_weight:
      transformer_->backward_weight(s, *context_, backward_arguments(i));
      return;
    case InstructionKind::reduce_gradients: {
      const View all = slice(gradients_, bucket().range);
      if (plan_.sharded) {
        data_group_.reduce_scatter(s, all, slice(gradients_, plan_.flat.shard(bucket(), plan_.coordinates().data)));
      } else {
        data_group_.all_reduce(s, all);
      }
      return;
    }
    case InstructionKind::gradient_norm:
      for (std::size_t r = 0; r < norm_ranges_.size(); ++r) {
        ops::sum_of_squares(s, *context_, norm_ranges_[r], scalars_.rows(0, 1), r > 0);
      }
      return;
    case InstructionKind::reduce_scalars:
      data_group_.all_reduce(s, scalars_);
      return;
    case InstructionKind::update:
      ops::norm_to_clip(s, scalars_.rows(0, 1), scalars_.rows(1, 1), settings.clip, optimizer_state_);
      ops::adamw(s, {.table = table_, .gradients = gradients_, .master = master_, .m = exp_avg_, .v = exp_avg_sq_,
                     .weights = weights_, .optimizer_state = optimizer_state_, .lr = settings.lr, .beta1 = settings.beta1,
                     .beta2 = settings.beta2, .epsilon = settings.epsilon, .weight_decay = settings.weight_decay,
                     .step = settings.update});
      return;
    case InstructionKind::gather_weights:
      data_group_.all_gather(s, slice(weights_, plan_.flat.shard(bucket(), plan_.coordinates().data)),
                             slice(weights_, bucket().range));
      return;
  }
}

void Interpreter::run_step(BatchSource& batches, const UpdateSettings& settings) {
  require(pending_results() < results_in_flight, "Interpreter::run_step: take results first");
  const auto slot_index = static_cast<std::size_t>(steps_issued_ % step_slots);
  Pending& slot = slots_[slot_index];
  const StreamRef compute = compute_stream();
  std::size_t exposed = 0;
  execute(plan_.train, train_events_, batches, settings, true, false, [&](std::size_t n, Moment moment) {
    if (moment == Moment::done || !may_expose(plan_.train, plan_.train.instructions[n])) return;
    if (moment == Moment::waiting) compute.record(slot.exposed[exposed].first);
    if (moment == Moment::started) compute.record(slot.exposed[exposed++].second);
  });
  compute.copy(slot.state, optimizer_state_.data, sizeof(ops::OptimizerState));
  compute.record(slot.done);
  slot.update = settings.update;
  slot.previous.reset();
  if (steps_issued_ > 0) slot.previous = static_cast<std::size_t>((steps_issued_ - 1) % step_slots);
  pending_.push_back(static_cast<int>(slot_index));
  ++steps_issued_;
}

std::optional<StepResult> Interpreter::next_result() {
  if (pending_.empty() || !slots_[static_cast<std::size_t>(pending_.front())].done.is_complete()) return std::nullopt;
  return synchronize_result();
}

StepResult Interpreter::synchronize_result() {
  require(!pending_.empty(), "Interpreter::synchronize_result: no step is pending");
  const Pending& slot = slots_[static_cast<std::size_t>(pending_.front())];
  pending_.pop_front();
  slot.done.synchronize();
  StepResult result{.update = slot.update,
                    .loss = slot.state->loss,
                    .grad_norm = slot.state->grad_norm,
                    .halted = slot.state->halted != 0.0f};
  if (slot.previous) result.device_ms = elapsed_ms(slots_[*slot.previous].done, slot.done);
  for (const auto& [before, after] : slot.exposed) result.exposed_comm_ms += elapsed_ms(before, after);
  return result;
}

std::vector<float> Interpreter::synchronize_profile(BatchSource& batches, const UpdateSettings& settings) {
  require(pending_.empty(), "Interpreter::synchronize_profile: take results first");
  const std::size_t count = plan_.train.instructions.size();
  std::vector<std::pair<Event, Event>> times;
  for (std::size_t n = 0; n < count; ++n) {
    times.emplace_back(Event(memory_.device(), EventTiming::on), Event(memory_.device(), EventTiming::on));
  }
  execute(plan_.train, train_events_, batches, settings, true, false, [&](std::size_t n, Moment moment) {
    const StreamRef s = stream(plan_.train.instructions[n].stream);
    if (moment == Moment::waiting) s.record(times[n].first);
    if (moment == Moment::done) s.record(times[n].second);
  });
  synchronize();
  std::vector<float> milliseconds;
  for (const auto& [begin, end] : times) milliseconds.push_back(elapsed_ms(begin, end));
  return milliseconds;
}

double Interpreter::synchronize_evaluation(BatchSource& batches, int micro_batches) {
  synchronize();  // weights gathered by the reduce stream
  const StreamRef compute = compute_stream();
  for (int mb = 0; mb < micro_batches; ++mb) {
    execute(plan_.evaluate, evaluate_events_, batches, {}, false, mb > 0, [](std::size_t, Moment) {});
  }
  data_group_.all_reduce(compute, evaluation_loss_);
  compute.copy(pinned_.data(), evaluation_loss_.data, evaluation_loss_.bytes());
  synchronize();
  const double sum = plan_.scalar_type() == DType::f64 ? *static_cast<double*>(pinned_.data())
                                                       : static_cast<double>(*static_cast<float*>(pinned_.data()));
  // The head scales by 1 / (global batch tokens), as in training; rescale to the tokens that were evaluated.
  return sum * static_cast<double>(plan_.global_batch) /
         static_cast<double>(micro_batches * plan_.model.micro_batch.batch * plan_.layout.data);
}

std::vector<float> Interpreter::synchronize_logits(const std::vector<std::int32_t>& tokens, std::int64_t row) {
  const std::int64_t rows = plan_.model.micro_batch.rows();
  require(static_cast<std::int64_t>(tokens.size()) == rows && row >= 0 && row < rows, "synchronize_logits: one micro-batch");
  struct OneBatch final : BatchSource {
    explicit OneBatch(const std::vector<std::int32_t>& t) : tokens(t) {}
    HostBatch next() override { return {tokens.data(), tokens.data()}; }
    void release(StreamRef) override {}
    const std::vector<std::int32_t>& tokens;
  } batch(tokens);
  synchronize();
  execute(plan_.evaluate, evaluate_events_, batch, {}, false, false, [](std::size_t, Moment) {});
  synchronize();
  const View logits = activations_.back()[0].logits.rows(row, 1);
  const auto vocab = static_cast<std::size_t>(plan_.model.shape.vocab);
  const StreamRef s = compute_stream();
  std::vector<float> out(vocab);
  require(logits.bytes() <= staging_bytes, "synchronize_logits: a row fits the staging memory");
  s.copy(pinned_.data(), logits.data, logits.bytes());
  s.synchronize();
  for (std::size_t i = 0; i < vocab; ++i) {
    switch (logits.dtype) {
      case DType::f32: out[i] = static_cast<float*>(pinned_.data())[i]; break;
      case DType::f64: out[i] = static_cast<float>(static_cast<double*>(pinned_.data())[i]); break;
      default: out[i] = static_cast<float>(static_cast<BFloat16*>(pinned_.data())[i]); break;
    }
  }
  return out;
}

}  // namespace plait::parallel
