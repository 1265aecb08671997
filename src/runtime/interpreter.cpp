#include "runtime/interpreter.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "core/error.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/rope.h"
#include "parallel/program_set.h"
#include "runtime/profiler_range.h"

namespace plait::runtime {
namespace {

// One more than may be pending: a step's time is measured from the end of the step before it, whose slot must not be reused
// yet.
constexpr int step_slots = Interpreter::results_in_flight + 1;

// What comes once in a step, behind its micro-batches.
bool follows_micro_batches(parallel::InstructionKind kind) {
  return kind == parallel::InstructionKind::meet || kind == parallel::InstructionKind::reduce_gradients ||
         kind == parallel::InstructionKind::gradient_norm || kind == parallel::InstructionKind::reduce_scalars ||
         kind == parallel::InstructionKind::update || kind == parallel::InstructionKind::gather_weights;
}

}  // namespace

Interpreter::Interpreter(parallel::RankPlan plan, DeviceMemory& memory, RankGroups groups, std::shared_ptr<RankLife> life)
    : plan_(std::move(plan)),
      memory_(memory),
      groups_(std::move(groups)),
      life_(std::move(life)),
      buffers_(plan_, memory, groups_.places),
      board_(memory) {
  const Device device = memory_.device();
  require(device.kind == plan_.device_kind, "Interpreter: the plan is for another kind of device");
  require(groups_.data->size() == plan_.layout.data && groups_.data->rank() == plan_.coordinates().data &&
              groups_.world->size() == plan_.layout.ranks(),
          "Interpreter: the communicators are not the plan's");
  life_->on_abort(groups_.abort_action());
  pinned_ = memory_.allocate(staging_bytes + step_slots * sizeof(ops::OptimizerState), MemoryKind::pinned_host);
  train_ = prepare(plan_.train);
  evaluate_ = prepare(plan_.evaluate);
  context_ = ops::make_op_context(device, buffers_.workspace, {.deterministic = plan_.deterministic});
  const bool announce =
      std::all_of(groups_.incoming.begin(), groups_.incoming.end(), [](const auto& l) { return l.second->announces(); });
  recorder_.emplace(plan_.train, plan_.layout, plan_.rank, device, step_slots, announce);
  fill_constants();

  auto* states = reinterpret_cast<ops::OptimizerState*>(static_cast<char*>(pinned_.data()) + staging_bytes);
  for (int i = 0; i < step_slots; ++i) slots_.push_back({.state = states + i});
}

StreamRef Interpreter::stream(const parallel::StreamSpec& spec) const { return streams_.at({spec.role, spec.peer}).ref(); }

Interpreter::Prepared Interpreter::prepare(const parallel::Program& program) {
  Prepared prepared;
  prepared.program = &program;
  for (const parallel::StreamSpec& spec : program.streams) {
    // Communication has little to launch and others wait for it.
    const StreamPriority priority = spec.role == parallel::StreamRole::compute ? StreamPriority::normal : StreamPriority::high;
    const auto it = streams_.try_emplace({spec.role, spec.peer}, memory_.device(), priority).first;
    prepared.streams.push_back(it->second.ref());
  }
  prepared.events.resize(program.instructions.size());
  for (const parallel::Instruction& instruction : program.instructions) {
    prepared.names.push_back(to_string(instruction));
    for (const int awaited : instruction.waits) {
      std::optional<Event>& event = prepared.events[static_cast<std::size_t>(awaited)];
      if (!event) event.emplace(memory_.device());
    }
  }
  for (const parallel::Instruction& instruction : program.instructions)
    prepared.places.push_back(place_of(program, instruction));
  return prepared;
}

int Interpreter::place_of(const parallel::Program& program, const parallel::Instruction& i) const {
  if (!parallel::is_send(i.kind) && !parallel::is_receive(i.kind)) return -1;
  const int peer = program.stream_of(i).peer;
  const std::vector<comm::p2p::Place>& places =
      (parallel::is_send(i.kind) ? groups_.outgoing : groups_.incoming).at(peer)->places();
  if (places.empty()) return -1;
  const bool forward =
      i.kind == parallel::InstructionKind::send_activation || i.kind == parallel::InstructionKind::receive_activation;
  const auto [chunk, slot] = parallel::is_send(i.kind) ? parallel::place_filled(i) : parallel::place_received(i);
  const std::string name =
      parallel::message_item({forward ? parallel::BufferKind::input : parallel::BufferKind::received_gradient, chunk, slot});
  const auto it = std::find_if(places.begin(), places.end(), [&](const comm::p2p::Place& place) { return place.name == name; });
  require(it != places.end(), "Interpreter: " + to_string(i) + " has no place called '" + name + "'");
  return static_cast<int>(it - places.begin());
}

void Interpreter::fill_constants() {
  const StreamRef s = compute_stream();
  const std::vector<std::uint8_t> table = ops::adamw_table(plan_.flat.adamw_ranges());
  s.copy(buffers_.adamw_table.data, table.data(), table.size());
  s.synchronize();
  if (buffers_.rope_table) {
    std::vector<std::uint8_t> host(buffers_.rope_table.bytes());
    ops::rope_table(plan_.sizes.shape.rope_base, View(host.data(), buffers_.rope_table.dtype, buffers_.rope_table.shape));
    s.copy(buffers_.rope_table.data, host.data(), host.size());
    s.synchronize();
  }
  transformer_.emplace(plan_.sizes, buffers_.rope_table);
  for (const View& view :
       {buffers_.optimizer_state, buffers_.scalars, buffers_.evaluation_loss, buffers_.arrival, buffers_.weights,
        buffers_.gradients, buffers_.kept_gradients, buffers_.master, buffers_.exp_avg, buffers_.exp_avg_sq}) {
    if (view) s.zero(view.data, view.bytes());
  }
  for (const model::Batch& batch : buffers_.batches) {
    s.zero(batch.tokens.data, batch.tokens.bytes());
    s.zero(batch.targets.data, batch.targets.bytes());
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
  // Any values do, but not zeros: products of zeros take less power, and other kernels would win. The weights are at hand.
  const StreamRef compute = compute_stream();
  for (const View& message : buffers_.received()) {
    for (std::size_t done = 0; done < message.bytes(); done += buffers_.weights.bytes()) {
      compute.copy(static_cast<char*>(message.data) + done, buffers_.weights.data,
                   std::min(buffers_.weights.bytes(), message.bytes() - done));
    }
  }
  synchronize();  // other streams read them too
  struct NoBatches final : BatchSource {
    HostBatch next() override { throw InternalError("synchronize_warm_up: loads nothing"); }
    void release(StreamRef) override {}
  } none;
  IssueObserver nobody;
  const auto set_alone = [&](bool alone) {
    if (groups_.tensor_links) groups_.tensor_links->set_alone(alone);
  };
  set_alone(true);  // what links exchange are messages too
  const auto do_part = [&](Prepared& prepared, const Part& part) {
    execute(prepared, none, {}, nobody, part);
    synchronize();
  };
  // The first micro-batch overwrites gradients and the second adds to them: all kinds of products there are.
  do_part(train_, [](const parallel::Instruction& i) { return i.segment >= 0 && i.micro_batch < 2; });
  do_part(evaluate_, [](const parallel::Instruction& i) { return i.segment >= 0; });
  // Once halted, an update changes nothing.
  auto* const halted = static_cast<ops::OptimizerState*>(pinned_.data());
  *halted = {.grad_norm = 0, .clip_factor = 0, .halted = 1, .loss = 0};
  compute.copy(buffers_.optimizer_state.data, halted, sizeof(*halted));
  do_part(train_, [](const parallel::Instruction& i) { return follows_micro_batches(i.kind); });
  compute.zero(buffers_.optimizer_state.data, buffers_.optimizer_state.bytes());
  synchronize();
  context_->set_tuning(false);
  set_alone(false);
}

void Interpreter::publish_weights() {
  const StreamRef s = compute_stream();
  if (plan_.separate_master) {
    for (std::size_t b = 0; b < plan_.flat.buckets().size(); ++b) {
      const parallel::Bucket& bucket = plan_.flat.buckets()[b];
      const View own = buffers_.own_weights(static_cast<int>(b));
      ops::convert(s, buffers_.master.rows(plan_.flat.state_first(bucket), own.elements()), own);
      if (plan_.zero > 0) groups_.data->all_gather(s, own, buffers_.bucket_weights(static_cast<int>(b)));
    }
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

model::Transformer::Backward Interpreter::backward_arguments(const parallel::Program& program, const parallel::Instruction& i,
                                                             model::SegmentActivations& activations,
                                                             model::SegmentGradients& gradients) {
  activations = buffers_.backward_activations(i);
  gradients = buffers_.gradients_of(program, i);
  const auto segment = static_cast<std::size_t>(i.segment);
  return {.segment = i.segment,
          .weights = &buffers_.segment_weights[segment],
          .weight_gradients = &buffers_.segment_gradients[segment],
          .batch = i.batch_slot < 0 ? model::Batch{} : buffers_.batches[static_cast<std::size_t>(i.batch_slot)],
          .norm_out = buffers_.norm(i).out,
          .activations = &activations,
          .gradients = &gradients,
          .norm_gradient = buffers_.norm_gradient(i.lane),
          .accumulate = i.accumulate,
          .accumulate_tokens = i.accumulate_tokens};
}

void Interpreter::execute(Prepared& prepared, BatchSource& batches, const UpdateSettings& settings, IssueObserver& observer,
                          const Part& part) {
  const parallel::Program& program = *prepared.program;
  const auto is_done = [&](const parallel::Instruction& i) { return !part || part(i); };
  guarded([&] {
    life_->check();
    if (!part) board_.begin(program);
    for (std::size_t n = 0; n < program.instructions.size(); ++n) {
      const parallel::Instruction& instruction = program.instructions[n];
      const int index = static_cast<int>(n);
      const StreamRef s = prepared.streams[static_cast<std::size_t>(instruction.stream)];
      const bool done = is_done(instruction);
      const ProfilerRange range(prepared.names[n].c_str());
      if (done) observer.waiting(index, s);
      for (const int awaited : instruction.waits) s.wait(*prepared.events[static_cast<std::size_t>(awaited)]);
      if (!done) {  // others rely on what it would have waited for
        if (prepared.events[n]) s.record(*prepared.events[n]);
        continue;
      }
      observer.started(index, s);
      issue(prepared, instruction, batches, settings, observer.ready(index));
      observer.done(index, s);
      if (prepared.events[n]) s.record(*prepared.events[n]);
      if (!part) board_.enqueued(s, program, index);
    }
  });
}

void Interpreter::forward(StreamRef s, const parallel::Program& program, const parallel::Instruction& i) {
  model::SegmentActivations activations = buffers_.forward_activations(i);
  const bool has_residual = !program.several && has_norm(program.kind(i.segment)) && has_output(program.kind(i.segment));
  const model::Batch batch = i.batch_slot < 0 ? model::Batch{} : buffers_.batches[static_cast<std::size_t>(i.batch_slot)];
  transformer_->forward(s, *context_,
                        {.segment = i.segment,
                         .weights = &buffers_.segment_weights[static_cast<std::size_t>(i.segment)],
                         .batch = batch,
                         .norm_out = buffers_.norm(i).out,
                         .residual = has_residual ? buffers_.own_rows(input_buffer(program, i, i.segment)) : View(),
                         .output = program.several ? buffers_.product(i.lane) : activations.output,
                         .is_partial = program.several,
                         .activations = &activations});
  if (program.several && !has_output(program.kind(i.segment))) {
    transformer_->loss_statistics(
        s, {.logits = activations.logits, .targets = batch.targets, .statistics = buffers_.statistics(i.lane), .losses = {}});
  }
}

void Interpreter::loss(StreamRef s, const parallel::Program& program, const parallel::Instruction& i) {
  const bool train = &program == &plan_.train;
  const double tokens = static_cast<double>(plan_.global_batch * plan_.sizes.micro_batch.sequence);
  const model::SegmentActivations activations = buffers_.forward_activations(i);
  transformer_->loss(s, {.logits = activations.logits,
                         .targets = buffers_.batches[static_cast<std::size_t>(i.batch_slot)].targets,
                         .statistics = buffers_.statistics(i.lane),
                         .losses = activations.losses,
                         .train = train,
                         .scale = static_cast<float>(1.0 / tokens)});
  const float scale = plan_.counts_loss() ? static_cast<float>(1.0 / tokens) : 0.0f;
  if (train) {
    ops::sum(s, *context_, activations.losses, buffers_.scalars.rows(1, 1), scale, i.accumulate);
  } else {
    ops::sum(s, *context_, activations.losses, buffers_.evaluation_loss, scale, accumulate_evaluation_);
  }
}

View Interpreter::sum(StreamRef s, View product) {
  const View own = buffers_.own_rows(product);
  if (plan_.sizes.split.sequence_parallel) {
    groups_.tensor->reduce_scatter(s, product, own);
  } else {
    groups_.tensor->all_reduce(s, product);
  }
  return own;
}

void Interpreter::gather(StreamRef s, View whole) { groups_.tensor->all_gather(s, buffers_.own_rows(whole), whole); }

void Interpreter::exchange_forward(StreamRef s, const parallel::Program& program, const parallel::Instruction& i) {
  const auto weights = [&](int segment) { return &buffers_.segment_weights[static_cast<std::size_t>(segment)]; };
  if (i.exchange.sum) {
    const int before = i.segment - 1;
    const bool has_residual = has_norm(program.kind(before));
    transformer_->add_residual(s, {.segment = before,
                                   .weights = weights(before),
                                   .sum = sum(s, buffers_.product(i.lane)),
                                   .residual = has_residual ? buffers_.own_rows(input_buffer(program, i, before)) : View(),
                                   .out = buffers_.own_rows(parallel::BufferId{parallel::BufferKind::output, before, i.slot})});
  }
  if (!i.exchange.norm) return;
  transformer_->norm_forward(s, {.segment = i.segment,
                                 .weights = weights(i.segment),
                                 .input = buffers_.own_rows(input_buffer(program, i, i.segment)),
                                 .norm = buffers_.own_norm(i)});
  if (i.exchange.gather) gather(s, buffers_.norm(i).out);
}

void Interpreter::exchange_backward(StreamRef s, const parallel::Program& program, const parallel::Instruction& i) {
  if (!i.exchange.norm) return gather(s, buffers_.whole(output_gradient_buffer(program, i, i.segment - 1)));
  const View product = buffers_.norm_gradient(i.lane);
  const bool has_residual = has_output(program.kind(i.segment));
  const parallel::BufferId input_gradient = input_gradient_buffer(program, i);
  const auto segment = static_cast<std::size_t>(i.segment);
  transformer_->norm_backward(
      s, *context_,
      {.forward = {.segment = i.segment,
                   .weights = &buffers_.segment_weights[segment],
                   .input = buffers_.own_rows(input_buffer(program, i, i.segment)),
                   .norm = buffers_.own_norm(i)},
       .weight_gradients = &buffers_.segment_gradients[segment],
       .out_gradient = i.exchange.sum ? sum(s, product) : product,
       .residual_gradient = has_residual ? buffers_.own_rows(output_gradient_buffer(program, i, i.segment)) : View(),
       .input_gradient = buffers_.own_rows(input_gradient),
       .workspace = buffers_.exchange_workspace,
       .accumulate = i.accumulate});
  if (i.exchange.gather) gather(s, buffers_.whole(input_gradient));
}

void Interpreter::reduce_gradients(StreamRef s, const parallel::Instruction& i) {
  if (i.group != parallel::Group::data) {  // what the data group has reduced already, in the part that this rank keeps
    groups_.of(i.group).all_reduce(s, buffers_.kept_gradient(i.bucket));
  } else if (plan_.zero == 0) {
    groups_.data->all_reduce(s, buffers_.bucket_gradients(i.bucket));
  } else {
    const View shard = buffers_.gradient_shard(i.bucket);
    groups_.data->reduce_scatter(s, buffers_.bucket_gradients(i.bucket), shard);
    if (plan_.zero < 2) return;
    if (i.accumulate) {
      ops::add(s, shard, buffers_.kept_gradient(i.bucket));
    } else {
      s.copy(buffers_.kept_gradient(i.bucket).data, shard.data, shard.bytes());
    }
  }
}

void Interpreter::issue(const Prepared& prepared, const parallel::Instruction& i, BatchSource& batches,
                        const UpdateSettings& settings, Event* ready) {
  const parallel::Program& program = *prepared.program;
  const StreamRef s = prepared.streams[static_cast<std::size_t>(i.stream)];
  const int place = prepared.places[static_cast<std::size_t>(&i - program.instructions.data())];
  switch (i.kind) {
    case parallel::InstructionKind::load_batch: {
      const model::Batch& slot = buffers_.batches[static_cast<std::size_t>(i.batch_slot)];
      const HostBatch host = batches.next();
      s.copy(slot.tokens.data, host.tokens, slot.tokens.bytes());
      s.copy(slot.targets.data, host.targets, slot.targets.bytes());
      batches.release(s);
      return;
    }
    case parallel::InstructionKind::receive_activation:
    case parallel::InstructionKind::receive_gradient:
      groups_.incoming.at(program.stream_of(i).peer)->receive(s, buffers_.message(program, i), ready, place);
      return;
    case parallel::InstructionKind::send_activation:
    case parallel::InstructionKind::send_gradient:
      groups_.outgoing.at(program.stream_of(i).peer)->send(s, buffers_.message(program, i), place);
      return;
    case parallel::InstructionKind::exchange_forward:
    case parallel::InstructionKind::exchange_recompute: exchange_forward(s, program, i); return;
    case parallel::InstructionKind::forward: forward(s, program, i); return;
    case parallel::InstructionKind::exchange_loss: {
      const View all = buffers_.statistics(i.lane);
      groups_.tensor->all_gather(s, transformer_->own_statistics(all), all);
      return;
    }
    case parallel::InstructionKind::loss: loss(s, program, i); return;
    case parallel::InstructionKind::exchange_backward: exchange_backward(s, program, i); return;
    case parallel::InstructionKind::backward_input:
    case parallel::InstructionKind::backward_weight: {
      model::SegmentActivations activations;
      model::SegmentGradients gradients;
      const auto args = backward_arguments(program, i, activations, gradients);
      if (i.kind == parallel::InstructionKind::backward_input) {
        transformer_->backward_input(s, *context_, args);
      } else {
        transformer_->backward_weight(s, *context_, args);
      }
      return;
    }
    case parallel::InstructionKind::meet: groups_.of(i.group).all_reduce(s, buffers_.arrival, comm::Reduction::max); return;
    case parallel::InstructionKind::reduce_gradients: reduce_gradients(s, i); return;
    case parallel::InstructionKind::gradient_norm: {
      const View squares = buffers_.scalars.rows(0, 1), loss = buffers_.scalars.rows(1, 1);
      if (buffers_.norm_ranges.empty()) s.zero(squares.data, squares.bytes());
      for (std::size_t r = 0; r < buffers_.norm_ranges.size(); ++r) {
        ops::sum_of_squares(s, *context_, buffers_.norm_ranges[r], squares, r > 0);
      }
      if (!plan_.counts_loss()) s.zero(loss.data, loss.bytes());  // what is there is the last step's sum
      return;
    }
    case parallel::InstructionKind::reduce_scalars: groups_.world->all_reduce(s, buffers_.scalars); return;
    case parallel::InstructionKind::update:
      ops::norm_to_clip(s, buffers_.scalars.rows(0, 1), buffers_.scalars.rows(1, 1), settings.clip, buffers_.optimizer_state);
      ops::adamw(s, {.table = buffers_.adamw_table,
                     .gradients = buffers_.kept_gradients,
                     .master = buffers_.master,
                     .m = buffers_.exp_avg,
                     .v = buffers_.exp_avg_sq,
                     .weights = buffers_.weights,
                     .optimizer_state = buffers_.optimizer_state,
                     .lr = settings.lr,
                     .beta1 = settings.beta1,
                     .beta2 = settings.beta2,
                     .epsilon = settings.epsilon,
                     .weight_decay = settings.weight_decay,
                     .step = settings.update});
      return;
    case parallel::InstructionKind::gather_weights:
      groups_.data->all_gather(s, buffers_.own_weights(i.bucket), buffers_.bucket_weights(i.bucket));
      return;
  }
}

void Interpreter::issue_step(BatchSource& batches, const UpdateSettings& settings, StepRecorder::Detail detail) {
  const auto slot_index = static_cast<std::size_t>(steps_issued_ % step_slots);
  Pending& slot = slots_[slot_index];
  const StreamRef compute = compute_stream();
  recorder_->begin(steps_issued_, compute, detail);
  execute(train_, batches, settings, *recorder_);
  compute.copy(slot.state, buffers_.optimizer_state.data, sizeof(ops::OptimizerState));
  recorder_->end(compute);
  slot.step = steps_issued_++;
  slot.update = settings.update;
  pending_.push_back(static_cast<int>(slot_index));
}

void Interpreter::run_step(BatchSource& batches, const UpdateSettings& settings) {
  require(pending_results() < results_in_flight, "Interpreter::run_step: take results first");
  issue_step(batches, settings, detail_);
}

parallel::StepTrace Interpreter::synchronize_traced_step(BatchSource& batches, const UpdateSettings& settings) {
  require(pending_.empty(), "Interpreter::synchronize_traced_step: take results first");
  issue_step(batches, settings, StepRecorder::Detail::everything);
  synchronize();
  return recorder_->synchronize_trace(steps_issued_ - 1, compute_stream());
}

std::optional<StepResult> Interpreter::next_result() {
  if (pending_.empty() || !recorder_->is_complete(slots_[static_cast<std::size_t>(pending_.front())].step)) return std::nullopt;
  return synchronize_result();
}

StepResult Interpreter::synchronize_result() {
  require(!pending_.empty(), "Interpreter::synchronize_result: no step is pending");
  const Pending& slot = slots_[static_cast<std::size_t>(pending_.front())];
  pending_.pop_front();
  guarded([&] {
    recorder_->synchronize(slot.step);
    // A stream that failed comes to the end of the step too, with a result that means nothing.
    for (const auto& [spec, s] : streams_) s.ref().rethrow_failure();
    life_->check();
  });
  StepRecorder::Result times = recorder_->take(slot.step);
  return {.update = slot.update,
          .loss = slot.state->loss,
          .grad_norm = slot.state->grad_norm,
          .halted = slot.state->halted != 0.0f,
          .device_ms = static_cast<float>(times.device_ms),
          .exposed_comm_ms = static_cast<float>(times.ledger.exposed_ms()),
          .ledger = std::move(times.ledger)};
}

std::vector<float> Interpreter::synchronize_profile(BatchSource& batches, const UpdateSettings& settings) {
  require(pending_.empty(), "Interpreter::synchronize_profile: take results first");
  const std::size_t count = plan_.train.instructions.size();
  struct Times final : IssueObserver {
    std::vector<std::pair<Event, Event>> events;
    void started(int n, StreamRef s) override { s.record(events[static_cast<std::size_t>(n)].first); }
    void done(int n, StreamRef s) override { s.record(events[static_cast<std::size_t>(n)].second); }
  } times;
  for (std::size_t n = 0; n < count; ++n) {
    times.events.emplace_back(Event(memory_.device(), EventTiming::on), Event(memory_.device(), EventTiming::on));
  }
  execute(train_, batches, settings, times);
  synchronize();
  std::vector<float> milliseconds;
  for (const auto& [begin, end] : times.events) milliseconds.push_back(elapsed_ms(begin, end));
  return milliseconds;
}

double Interpreter::synchronize_evaluation(BatchSource& batches, int micro_batches) {
  return synchronize_evaluation(batches, micro_batches, [] { return false; }).value();
}

std::optional<double> Interpreter::synchronize_evaluation(BatchSource& batches, int micro_batches,
                                                          const std::function<bool()>& cut) {
  synchronize();  // weights gathered by the reduce stream
  const StreamRef compute = compute_stream();
  IssueObserver nobody;
  for (int mb = 0; mb < micro_batches; ++mb) {
    if (cut()) {
      synchronize();
      return std::nullopt;
    }
    accumulate_evaluation_ = mb > 0;
    execute(evaluate_, batches, {}, nobody);
  }
  synchronize();
  // Ranks without the head still have the sum of the evaluation before.
  if (!plan_.counts_loss()) compute.zero(buffers_.evaluation_loss.data, buffers_.evaluation_loss.bytes());
  groups_.world->all_reduce(compute, buffers_.evaluation_loss);
  compute.copy(pinned_.data(), buffers_.evaluation_loss.data, buffers_.evaluation_loss.bytes());
  synchronize();
  const double sum = plan_.scalar_type() == DType::f64 ? *static_cast<double*>(pinned_.data())
                                                       : static_cast<double>(*static_cast<float*>(pinned_.data()));
  // The head scales by 1 / (global batch tokens), as in training; rescale to the tokens that were evaluated.
  return sum * static_cast<double>(plan_.global_batch) /
         static_cast<double>(micro_batches * plan_.sizes.micro_batch.batch * plan_.layout.data);
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
  IssueObserver nobody;
  synchronize();
  execute(evaluate_, batch, {}, nobody);
  synchronize();
  const View logits = buffers_.forward_activations(plan_.evaluate.instructions.back()).logits.rows(row, 1);
  const std::vector<double> values = synchronize_read(logits);
  return {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(plan_.sizes.shape.vocab)};
}

void Interpreter::synchronize_step(BatchSource& batches, const StepObserver& observe) {
  synchronize();
  struct AfterEach final : IssueObserver {
    std::function<void(int, StreamRef)> look;
    void done(int n, StreamRef s) override { look(n, s); }
  } after_each;
  after_each.look = [&](int n, StreamRef s) {
    const parallel::Instruction& i = plan_.train.at(n);
    // Messages stay in flight: the rank at their other end may be waiting for what this one computes next.
    if (i.segment < 0) return;
    s.synchronize();
    observe(i, written_by(plan_, buffers_, i));
  };
  execute(train_, batches, {}, after_each, [](const parallel::Instruction& i) { return !follows_micro_batches(i.kind); });
  synchronize();
}

}  // namespace plait::runtime
