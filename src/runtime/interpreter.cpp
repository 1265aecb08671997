#include "runtime/interpreter.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "core/error.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/rope.h"
#include "parallel/program/program_set.h"

namespace plait::runtime {
namespace {

// One slot more than steps may be pending: a step's time is measured from the end of the step before it, whose slot must not be
// reused yet.
constexpr int step_slots = Interpreter::results_in_flight + 1;

// Once in a step, behind its micro-batches: all but what passes and messages do.
bool follows_micro_batches(const parallel::Instruction& i) {
  if (parallel::is_collective(i)) return i.segment < 0;
  return i.kind == parallel::InstructionKind::gradient_norm || i.kind == parallel::InstructionKind::update ||
         i.kind == parallel::InstructionKind::scale_weights || i.kind == parallel::InstructionKind::quantize_weights;
}

bool loads_batch(const parallel::Instruction& i) { return i.kind == parallel::InstructionKind::load_batch; }

// The batches of instructions that load none.
BatchSource& no_batches() {
  struct NoBatches final : BatchSource {
    HostBatch next() override { throw InternalError("Interpreter: what is issued loads no batch"); }
    void release(StreamRef) override {}
  };
  static NoBatches none;
  return none;
}

StagedBatches staged_batches(const parallel::RankPlan& plan, std::byte* memory) {
  const model::MicroBatchShape& shape = plan.sizes.micro_batch;
  return {memory, static_cast<std::size_t>(std::ranges::count_if(plan.train.instructions, loads_batch)),
          static_cast<std::size_t>(shape.rows()) * sizeof(std::int32_t), shape.documents == Documents::separate};
}

std::size_t staged_bytes(const parallel::RankPlan& plan) { return staged_batches(plan, nullptr).bytes(); }

}  // namespace

Interpreter::Interpreter(parallel::RankPlan plan, DeviceMemory& memory, RankGroups groups, std::shared_ptr<RankLife> life)
    : plan_(std::move(plan)),
      memory_(memory),
      groups_(std::move(groups)),
      life_(std::move(life)),
      buffers_(plan_, memory, groups_.places, groups_.symmetric_memory()),
      board_(memory) {
  const Device device = memory_.device();
  require(device.kind == plan_.device_kind, "Interpreter: the plan is for another kind of device");
  for (const parallel::GroupStream& kind : parallel::group_streams_of(plan_)) {
    const std::vector<int> members = plan_.members(kind.group);
    const auto place = std::find(members.begin(), members.end(), plan_.rank) - members.begin();
    require(groups_.of(kind).size() == std::ssize(members) && groups_.of(kind).rank() == place,
            "Interpreter: the communicators are not the plan's");
  }
  life_->on_abort(groups_.abort_action());
  if (device.is_cuda()) trial_.emplace(plan_.graph, plan_.graph_obstacle(), plan_.layout.ranks());
  const std::size_t batch_bytes = trial_ && trial_->may_be_whole() ? staged_bytes(plan_) : 0;
  pinned_ = memory_.allocate(staging_bytes + step_slots * (sizeof(StepMemory) + batch_bytes), MemoryKind::pinned_host);
  context_ = ops::make_op_context(device, buffers_.workspace, {.deterministic = plan_.deterministic});
  for (const parallel::Program* program : {&plan_.train, &plan_.evaluate}) {
    for (const parallel::StreamSpec& spec : program->streams) {
      // Communication has few kernels to launch, and other ranks wait for it.
      const bool computes = spec.role == parallel::StreamRole::compute;
      const StreamPriority priority = computes ? StreamPriority::normal : StreamPriority::high;
      // Kernels follow each other on these streams. Between messages and collectives, the time that an event takes does not
      // matter.
      const bool has_companion = computes || spec.role == parallel::StreamRole::exchange;
      streams_.try_emplace({spec.role, spec.peer}, device, priority, has_companion);
    }
  }
  const bool announce =
      std::all_of(groups_.incoming.begin(), groups_.incoming.end(), [](const auto& l) { return l.second->announces(); });
  recorder_.emplace(plan_.train, plan_.layout, plan_.rank, device, step_slots, announce);
  // CUDA loads a kernel when it is first launched, which must not happen while a step is captured. All other kernels are in a
  // step.
  if (batch_bytes > 0) add_on_stream(compute_stream(), static_cast<std::uint32_t*>(pinned_.data()), 0);
  fill_constants();
  transformer_.emplace(plan_.sizes, buffers_.rope_table, buffers_.operand_workspace);
  binding_.emplace(BindingContext{plan_, buffers_, groups_, *transformer_, *context_});
  train_ = bind(plan_.train);
  evaluate_ = bind(plan_.evaluate);

  auto* const memory_of_slots = reinterpret_cast<StepMemory*>(static_cast<std::byte*>(pinned_.data()) + staging_bytes);
  auto* const batches_of_slots = reinterpret_cast<std::byte*>(memory_of_slots + step_slots);
  for (std::size_t i = 0; i < step_slots; ++i) {
    slots_.push_back({.memory = memory_of_slots + i, .batches = {}});
    if (batch_bytes > 0) slots_.back().batches.emplace(staged_batches(plan_, batches_of_slots + i * batch_bytes));
  }
  if (batch_bytes > 0) {
    idle_.emplace(device);
    order_.emplace(device);
  }
}

StreamRef Interpreter::stream(const parallel::StreamSpec& spec) const { return streams_.at({spec.role, spec.peer}).ref(); }

Interpreter::Pending& Interpreter::next_slot() { return slots_[static_cast<std::size_t>(steps_issued_ % step_slots)]; }

Interpreter::BoundProgram Interpreter::bind(const parallel::Program& program) {
  BoundProgram bound{.program = &program, .streams = {}, .instructions = {}};
  for (const parallel::StreamSpec& spec : program.streams) bound.streams.push_back(stream(spec));
  std::vector<Issue> issues = bind_instructions(*binding_, program, bound.streams);
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    const parallel::Instruction& instruction = program.instructions[n];
    bound.instructions.push_back({.stream = bound.streams[static_cast<std::size_t>(instruction.stream)],
                                  .waits = {},
                                  .issue = std::move(issues[n]),
                                  .done = Event(memory_.device()),
                                  .captured = Event(memory_.device()),
                                  .name = to_string(instruction)});
  }
  for (std::size_t n = 0; n < program.instructions.size(); ++n) {
    for (const int awaited : program.instructions[n].waits) {
      BoundInstruction& other = bound.instructions[static_cast<std::size_t>(awaited)];
      other.is_awaited = true;
      bound.instructions[n].waits.push_back(&other);
    }
  }
  return bound;
}

void Interpreter::fill_constants() {
  const StreamRef s = compute_stream();
  const std::vector<std::uint8_t> table = ops::adamw_table(plan_.flat.adamw_ranges(), plan_.moment_type);
  s.copy(buffers_.adamw_table.data, table.data(), table.size());
  s.synchronize();
  if (buffers_.rope_table) {
    std::vector<std::uint8_t> host(buffers_.rope_table.bytes());
    ops::rope_table(plan_.sizes.shape.rope_base, plan_.sizes.shape.rope_scaling,
                    View(host.data(), buffers_.rope_table.dtype, buffers_.rope_table.shape));
    s.copy(buffers_.rope_table.data, host.data(), host.size());
    s.synchronize();
  }
  for (const View& view :
       {buffers_.optimizer_state, buffers_.scalars, buffers_.evaluation_sums, buffers_.arrival, buffers_.weights,
        buffers_.gradients, buffers_.kept_gradients, buffers_.master, buffers_.exp_avg, buffers_.exp_avg_sq}) {
    if (view) s.zero(view.data, view.bytes());
  }
  for (const model::Batch& batch : buffers_.batches) {
    for (const View& view : {batch.tokens, batch.targets, batch.starts}) {
      if (view) s.zero(view.data, view.bytes());
    }
  }
  s.synchronize();
}

void Interpreter::initialize(std::uint64_t seed) {
  // Each piece is drawn by element index, so threads and ranks may split them in any way.
  const StreamRef s = compute_stream();
  const std::int64_t chunk = static_cast<std::int64_t>(staging_bytes / sizeof(double) / 2);
  auto* floats = static_cast<float*>(pinned_.data());
  auto* doubles = reinterpret_cast<double*>(floats + chunk);
  const auto threads = static_cast<std::int64_t>(
      std::max(1u, std::thread::hardware_concurrency() / static_cast<unsigned>(plan_.layout.ranks())));
  for (const parallel::FlatLayout::StatePiece& piece : plan_.flat.state_pieces()) {
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
      const View target = buffers_.master.rows(piece.state_first + done, count);
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

void Interpreter::synchronize_warm_up() {
  // Any values will do except zeros: products of zeros take less power, and other kernels would win. The weights are at hand.
  const StreamRef compute = compute_stream();
  for (const View& message : buffers_.received()) {
    for (std::size_t done = 0; done < message.bytes(); done += buffers_.weights.bytes()) {
      compute.copy(static_cast<char*>(message.data) + done, buffers_.weights.data,
                   std::min(buffers_.weights.bytes(), message.bytes() - done));
    }
  }
  synchronize();  // other streams read them too
  IssueObserver nobody;
  const auto set_alone = [&](bool alone) {
    for (const auto& [group, links] : groups_.by_links) links->set_alone(alone);
  };
  set_alone(true);  // data that links move are messages too
  ops::UpdateCoefficients& update = next_slot().memory->update;
  update = ops::update_coefficients({});
  const auto do_part = [&](BoundProgram& bound, const Part& part) {
    execute(bound, {no_batches(), &update}, nobody, part);
    synchronize();
  };
  // The first micro-batch overwrites gradients and the second adds to them: these are all the kinds of products there are.
  do_part(train_, [](const parallel::Instruction& i) { return i.segment >= 0 && i.micro_batch < 2; });
  do_part(evaluate_, [](const parallel::Instruction& i) { return i.segment >= 0; });
  // In the halted state an update changes nothing.
  auto* const halted = static_cast<ops::OptimizerState*>(pinned_.data());
  *halted = {.grad_norm = 0, .gradient_factor = 0, .halted = 1, .loss = 0, .ignored = 0, .update = update};
  compute.copy(buffers_.optimizer_state.data, halted, sizeof(*halted));
  do_part(train_, [](const parallel::Instruction& i) { return follows_micro_batches(i); });
  compute.zero(buffers_.optimizer_state.data, buffers_.optimizer_state.bytes());
  synchronize();
  context_->set_tuning(false);
  if (trial_ && (plan_.graph == GraphUse::automatic || plan_.graph == GraphUse::instructions)) capture_instructions();
  set_alone(false);
  // While links were alone, this rank's weights and their scales stood in for those of others.
  if (!groups_.by_links.empty()) publish_weights();
}

void Interpreter::capture_instructions() {
  guarded([&] {
    std::vector<BoundInstruction>& all = train_.instructions;
    instruction_graphs_.emplace(
        plan_.train, [&](int n) { return all[static_cast<std::size_t>(n)].stream; },
        [&](int n) { all[static_cast<std::size_t>(n)].issue({no_batches(), nullptr}, nullptr); });
    for (std::size_t n = 0; n < all.size(); ++n) all[n].graph = instruction_graphs_->of(static_cast<int>(n));
  });
}

std::string Interpreter::launch_text() const {
  if (!trial_) return "";
  if (!instruction_graphs_ || instruction_graphs_->share() == 0) return trial_->text("kernel by kernel");
  return trial_->text(
      fmt::format("instruction by instruction ({:.0f} % of those that compute)", 100 * instruction_graphs_->share()));
}

void Interpreter::publish_weights() {
  const StreamRef s = compute_stream();
  if (plan_.separate_master) {
    for (std::size_t b = 0; b < plan_.flat.buckets().size(); ++b) {
      const parallel::Bucket& bucket = plan_.flat.buckets()[b];
      const View own = buffers_.own_weights(static_cast<int>(b));
      ops::convert(s, buffers_.master.rows(plan_.flat.state_first(bucket), own.elements()), own);
      if (plan_.zero > 0)
        groups_.of(parallel::reduction_group).all_gather(s, own, buffers_.bucket_weights(static_cast<int>(b)));
    }
  }
  for (std::size_t b = 0; b < plan_.flat.buckets().size(); ++b) {
    const std::vector<ops::QuantizedTensor>& weights = buffers_.quantized_weights(static_cast<int>(b));
    if (weights.empty()) continue;
    ops::find_scales(s, *context_, weights);
    if (plan_.sizes.split.size > 1) {
      groups_.of({parallel::groups::tensor, parallel::stream_role(Purpose::weights)})
          .all_reduce(s, buffers_.weight_scales(static_cast<int>(b)), comm::Reduction::max);
    }
    ops::quantize_all(s, *context_, weights);
  }
  synchronize();
}

void Interpreter::synchronize() {
  guarded([this] {
    for (const auto& [spec, s] : streams_) s.ref().synchronize();
    life_->check();
  });
}

void Interpreter::synchronize_aborted() noexcept {
  for (const auto& [spec, s] : streams_) runtime::synchronize_aborted(s);
}

std::vector<float> Interpreter::synchronize_profile(BatchSource& batches, const UpdateSettings& settings) {
  require(pending_results() < results_in_flight, "Interpreter::synchronize_profile: take results first");
  const std::size_t count = plan_.train.instructions.size();
  struct Ends final : IssueObserver {
    std::vector<Event> events;
    bool observes_end(int) const override { return true; }
    void done(int n, StreamRef s) override { s.record(events[static_cast<std::size_t>(n)]); }
  } ends;
  for (std::size_t n = 0; n < count; ++n) ends.events.emplace_back(memory_.device(), EventTiming::on);
  // The origin is recorded beside the stream, as the ends are, so all of them are late alike.
  Event begun(memory_.device()), origin(memory_.device(), EventTiming::on);
  compute_stream().record(begun);
  compute_stream().aside(begun).record(origin);
  next_slot().memory->update = ops::update_coefficients(settings);
  execute(train_, {batches, &next_slot().memory->update}, ends);
  synchronize();
  std::vector<float> end_ms, milliseconds;
  std::vector<float> stream_ms(plan_.train.streams.size(), 0);  // by stream: end of its latest instruction
  for (std::size_t n = 0; n < count; ++n) {
    const parallel::Instruction& i = plan_.train.instructions[n];
    float& latest = stream_ms[static_cast<std::size_t>(i.stream)];
    float begin = latest;
    for (const int awaited : i.waits) {
      if (awaited < static_cast<int>(n)) begin = std::max(begin, end_ms[static_cast<std::size_t>(awaited)]);
    }
    end_ms.push_back(latest = elapsed_ms(origin, ends.events[n]));
    milliseconds.push_back(std::max(0.0f, latest - begin));
  }
  return milliseconds;
}

EvaluationLoss Interpreter::synchronize_evaluation(BatchSource& batches, int micro_batches) {
  return synchronize_evaluation(batches, micro_batches, [] { return false; }).value();
}

std::optional<EvaluationLoss> Interpreter::synchronize_evaluation(BatchSource& batches, int micro_batches,
                                                                  const std::function<bool()>& cut) {
  synchronize();  // weights gathered by the reduce stream
  const StreamRef compute = compute_stream();
  IssueObserver nobody;
  for (int mb = 0; mb < micro_batches; ++mb) {
    if (cut()) {
      synchronize();
      return std::nullopt;
    }
    execute(evaluate_, {.batches = batches, .add_losses = mb > 0}, nobody);
  }
  synchronize();
  // Ranks that count no losses still have the sums of the evaluation before.
  const View& sums = buffers_.evaluation_sums;
  if (!plan_.counts_loss()) compute.zero(sums.data, sums.bytes());
  groups_.of({parallel::groups::world, parallel::StreamRole::reduce}).all_reduce(compute, sums);
  synchronize();
  const std::vector<double> values = synchronize_read(sums);  // Σ loss / tokens_per_step(), and number of ignored targets
  // Each replica sees other tokens.
  const std::int64_t targets = micro_batches * plan_.sizes.micro_batch.rows() * plan_.layout.size(replica_axes);
  const std::int64_t counted = targets - std::llround(values[1]);
  if (counted <= 0) return EvaluationLoss{};
  return EvaluationLoss{values[0] * static_cast<double>(plan_.tokens_per_step()) / static_cast<double>(counted), counted};
}

model::SegmentActivations Interpreter::head_activations() const {
  const std::vector<parallel::Instruction>& all = plan_.evaluate.instructions;
  const auto loss = std::ranges::find(all, parallel::InstructionKind::loss, &parallel::Instruction::kind);
  require(loss != all.end(), "Interpreter: this rank has no head");
  return buffers_.forward_activations(*loss);
}

std::vector<double> Interpreter::synchronize_token_losses(BatchSource& batches, int micro_batches) {
  synchronize();  // weights gathered by the reduce stream
  const StreamRef compute = compute_stream();
  const View losses = plan_.counts_loss() ? head_activations().losses : View();
  const auto count = static_cast<std::size_t>(micro_batches);
  require(losses.bytes() * count <= staging_bytes, "synchronize_token_losses: too many micro-batches at once");
  IssueObserver nobody;
  for (std::size_t mb = 0; mb < count; ++mb) {
    execute(evaluate_, {.batches = batches}, nobody);
    if (losses) compute.copy(static_cast<char*>(pinned_.data()) + mb * losses.bytes(), losses.data, losses.bytes());
  }
  synchronize();
  std::vector<double> values;
  if (!losses) return values;
  const auto all = count * static_cast<std::size_t>(losses.elements());
  if (losses.dtype == DType::f64) {
    const auto* list = static_cast<const double*>(pinned_.data());
    values.assign(list, list + all);
  } else {
    require(losses.dtype == DType::f32, "synchronize_token_losses: losses are fp32 or fp64");
    const auto* list = static_cast<const float*>(pinned_.data());
    values.assign(list, list + all);
  }
  return values;
}

View Interpreter::synchronize_logits(BatchSource& batches) {
  IssueObserver nobody;
  synchronize();
  execute(evaluate_, {.batches = batches}, nobody);
  synchronize();
  return plan_.holds(plan_.sizes.shape.head_segment()) ? head_activations().logits : View();
}

std::vector<float> Interpreter::synchronize_logits(const std::vector<std::int32_t>& tokens, std::int64_t row) {
  const std::int64_t rows = plan_.sizes.micro_batch.rows();
  require(plan_.layout.ranks() == 1, "synchronize_logits: one rank has the whole model");
  require(static_cast<std::int64_t>(tokens.size()) == rows && row >= 0 && row < rows, "synchronize_logits: one micro-batch");
  struct OneBatch final : BatchSource {
    explicit OneBatch(const std::vector<std::int32_t>& t) : tokens(t) {}
    HostBatch next() override { return {tokens.data(), tokens.data()}; }
    void release(StreamRef) override {}
    const std::vector<std::int32_t>& tokens;
  } batch(tokens);
  const std::vector<double> values = synchronize_read(synchronize_logits(batch).rows(row, 1));
  return {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(plan_.sizes.shape.vocab)};
}

void Interpreter::synchronize_step(BatchSource& batches, const StepObserver& observe) {
  synchronize();
  struct AfterEach final : IssueObserver {
    std::function<void(int, StreamRef)> look;
    bool observes_end(int) const override { return true; }
    void done(int n, StreamRef s) override { look(n, s); }
  } after_each;
  after_each.look = [&](int n, StreamRef s) {
    const parallel::Instruction& i = plan_.train.at(n);
    // Messages stay in flight: the rank at the other end may be waiting for what this one computes next.
    if (i.segment < 0) return;
    s.synchronize();
    observe(i, written_by(plan_, buffers_, i));
  };
  execute(train_, {batches}, after_each, [](const parallel::Instruction& i) { return !follows_micro_batches(i); });
  synchronize();
}

}  // namespace plait::runtime
