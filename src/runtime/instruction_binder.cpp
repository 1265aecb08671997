#include "runtime/instruction_binder.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/error.h"
#include "ops/adamw.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "parallel/program/program_set.h"

namespace plait::runtime {
namespace {

// Instructions without external inputs.
template <typename Work>
Issue always(Work work) {
  return [work = std::move(work)](const StepInputs&, Event*) { work(); };
}

// Addends of a sum over ranks, between the collective that brings them and the norm that adds them up.
using Addends = std::shared_ptr<std::vector<View>>;

// Binds the instructions of one program. The result refers to `to`, not to the Binder.
class Binder {
 public:
  Binder(const BindingContext& to, const parallel::Program& program) : to_(to), program_(program) {}

  std::vector<Issue> bind(const std::vector<StreamRef>& streams) const {
    std::vector<Issue> issues;
    Addends before;  // those of the instruction before
    for (int n = 0; n < static_cast<int>(program_.instructions.size()); ++n) {
      const Instruction& i = program_.at(n);
      const Addends addends = addends_of(n);
      issues.push_back(issue_of(i, streams[static_cast<std::size_t>(i.stream)], addends ? addends : before));
      before = addends;
    }
    return issues;
  }

 private:
  using Instruction = parallel::Instruction;
  using InstructionKind = parallel::InstructionKind;
  using BufferKind = parallel::BufferKind;
  using BufferId = parallel::BufferId;

  const model::SegmentParameters* weights(int segment) const {
    return &to_.buffers.segment_weights[static_cast<std::size_t>(segment)];
  }
  const model::QuantizedParameters& quantized(int segment) const {
    return to_.buffers.segment_quantized[static_cast<std::size_t>(segment)];
  }
  const model::SegmentParameters* weight_gradients(int segment) const {
    return &to_.buffers.segment_gradients[static_cast<std::size_t>(segment)];
  }
  model::Batch batch(const Instruction& i) const {
    return i.batch_slot < 0 ? model::Batch{} : to_.buffers.batches[static_cast<std::size_t>(i.batch_slot)];
  }

  // A place for the addends of instruction `n` if it reduces rows that the next one, a norm, and nothing else reads. Else null.
  Addends addends_of(int n) const {
    const Instruction& i = program_.at(n);
    if (!parallel::communicates_in_pass(i) || i.collective.operation != Operation::reduce_scatter) return nullptr;
    if (n + 1 == static_cast<int>(program_.instructions.size())) return nullptr;
    const Instruction& next = program_.at(n + 1);
    const bool norms = next.kind == InstructionKind::norm || next.kind == InstructionKind::norm_backward;
    const bool same = next.stream == i.stream && next.segment == i.segment && next.micro_batch == i.micro_batch;
    return norms && same ? std::make_shared<std::vector<View>>() : nullptr;
  }

  // `addends`: those of the instruction, if it is a sum, or of the sum in front of it; null if that is not bound so.
  Issue issue_of(const Instruction& i, StreamRef s, const Addends& addends) const {
    using enum InstructionKind;
    switch (i.kind) {
      case load_batch: return Binder::load_batch(i, s);
      case receive_activation:
      case receive_gradient:
      case send_activation:
      case send_gradient: return message(i, s);
      case add_residual:
      case InstructionKind::norm: return Binder::norm(i, s, addends);
      case round_norm: {
        const model::NormActivations norm = to_.buffers.norm(i);
        return round(norm.out, norm.values, norm.scale, s);
      }
      case forward: return Binder::forward(i, s);
      case loss: return Binder::loss(i, s);
      case backward_input:
      case backward_weight: return backward(i, s);
      case norm_backward: return Binder::norm_backward(i, s, addends);
      case round_gradient: {
        const model::SegmentGradients before = to_.buffers.output_gradient(input_gradient_buffer(program_, i));
        return round(before.output, before.output_values, before.output_scale, s);
      }
      case gradient_norm: return Binder::gradient_norm(s);
      case update: return Binder::update(s);
      case scale_weights: return Binder::scale_weights(i, s);
      case quantize_weights: return Binder::quantize_weights(i, s);
      case InstructionKind::collective: return Binder::collective(i, s, addends);
    }
    throw InternalError("bind_instructions: unknown instruction kind");
  }

  int place_of(const Instruction& i) const {
    const bool sends = parallel::is_send(i.kind);
    const std::vector<comm::p2p::Place>& places =
        (sends ? to_.groups.outgoing : to_.groups.incoming).at(program_.stream_of(i).peer)->places();
    if (places.empty()) return -1;
    const auto [chunk, slot] = sends ? parallel::place_filled(i) : parallel::place_received(i);
    const bool forward = i.kind == InstructionKind::send_activation || i.kind == InstructionKind::receive_activation;
    const BufferId buffer{forward ? BufferKind::input : BufferKind::received_gradient, chunk, slot};
    const auto it = std::ranges::find(places, place_id(buffer), &comm::p2p::Place::id);
    require(it != places.end(), "bind_instructions: " + to_string(i) + " has no place for the " + to_string(buffer));
    return static_cast<int>(it - places.begin());
  }

  Issue message(const Instruction& i, StreamRef s) const {
    const View data = to_.buffers.message(program_, i);
    const int place = place_of(i), peer = program_.stream_of(i).peer;
    if (parallel::is_send(i.kind))
      return always([&link = *to_.groups.outgoing.at(peer), s, data, place] { link.send(s, data, place); });
    return [&link = *to_.groups.incoming.at(peer), s, data, place](const StepInputs&, Event* ready) {
      link.receive(s, data, ready, place);
    };
  }

  Issue load_batch(const Instruction& i, StreamRef s) const {
    return [s, slot = batch(i)](const StepInputs& inputs, Event*) {
      const HostBatch host = inputs.batches.next();
      s.copy(slot.tokens.data, host.tokens, slot.tokens.bytes());
      s.copy(slot.targets.data, host.targets, slot.targets.bytes());
      if (slot.starts) {
        require(host.starts != nullptr, "load_batch: the batch does not say where its documents begin");
        s.copy(slot.starts.data, host.starts, slot.starts.bytes());
      }
      inputs.batches.release(s);
    };
  }

  Issue forward(const Instruction& i, StreamRef s) const {
    struct Call {
      model::SegmentActivations activations;
      model::Transformer::Forward args;
    };
    const auto call = std::make_shared<Call>(Call{to_.buffers.forward_activations(i), {}});
    const model::SegmentKind kind = program_.kind(i.segment);
    const bool partial = program_.segment(i.segment).partial, has_residual = !partial && has_norm(kind) && has_output(kind);
    call->args = {.segment = i.segment,
                  .range = {i.part, parallel::parts_of(program_.segment(i.segment), InstructionKind::forward)},
                  .weights = weights(i.segment),
                  .quantized = quantized(i.segment),
                  .batch = batch(i),
                  .norm = to_.buffers.norm(i),
                  .residual = has_residual ? to_.buffers.own_rows(input_buffer(program_, i, i.segment)) : View(),
                  .output = partial ? to_.buffers.product(i.lane) : call->activations.output,
                  .is_partial = partial,
                  .activations = &call->activations};
    if (!partial || has_output(kind))
      return always([&to_ = to_, s, call] { to_.transformer.forward(s, to_.context, call->args); });
    const model::Transformer::Loss statistics{.logits = call->activations.logits,
                                              .targets = call->args.batch.targets,
                                              .statistics = to_.buffers.statistics(i.lane),
                                              .losses = {}};
    return always([&to_ = to_, s, call, statistics] {
      to_.transformer.forward(s, to_.context, call->args);
      to_.transformer.loss_statistics(s, statistics);
    });
  }

  Issue loss(const Instruction& i, StreamRef s) const {
    const bool train = &program_ == &to_.plan.train;
    const auto per_token = static_cast<float>(1.0 / static_cast<double>(to_.plan.tokens_per_step()));
    const model::SegmentActivations activations = to_.buffers.forward_activations(i);
    const model::Transformer::Loss args{.logits = activations.logits,
                                        .targets = batch(i).targets,
                                        .statistics = to_.buffers.statistics(i.lane),
                                        .losses = activations.losses,
                                        .train = train,
                                        .scale = per_token};
    if (!to_.plan.counts_loss()) return always([&to_ = to_, s, args] { to_.transformer.loss(s, args); });
    const View sums = train ? to_.buffers.scalars.rows(1, 2) : to_.buffers.evaluation_sums;
    return [&to_ = to_, s, args, sums, per_token, train, accumulate = i.accumulate](const StepInputs& inputs, Event*) {
      const bool add = train ? accumulate : inputs.add_losses;
      to_.transformer.loss(s, args);
      ops::sum(s, to_.context, args.losses, sums.rows(0, 1), per_token, add);
      ops::count_ignored(s, args.targets, sums.rows(1, 1), add);
    };
  }

  Issue backward(const Instruction& i, StreamRef s) const {
    struct Call {
      model::SegmentActivations activations;
      model::SegmentGradients gradients;
      model::Transformer::Backward args;
    };
    const auto call =
        std::make_shared<Call>(Call{to_.buffers.backward_activations(i), to_.buffers.gradients_of(program_, i), {}});
    call->args = {.segment = i.segment,
                  .range = {i.part, parallel::parts_of(program_.segment(i.segment), InstructionKind::backward_input)},
                  .weights = weights(i.segment),
                  .quantized = quantized(i.segment),
                  .weight_gradients = weight_gradients(i.segment),
                  .batch = batch(i),
                  .norm = to_.buffers.norm(i),
                  .activations = &call->activations,
                  .gradients = &call->gradients,
                  .scale_found = has_output(program_.kind(i.segment)) &&
                                 output_gradient_buffer(program_, i, i.segment).kind == BufferKind::output_gradient,
                  .norm_gradient = to_.buffers.norm_gradient(i.lane),
                  .accumulate = i.accumulate,
                  .accumulate_tokens = i.accumulate_tokens};
    if (i.kind == InstructionKind::backward_input)
      return always([&to_ = to_, s, call] { to_.transformer.backward_input(s, to_.context, call->args); });
    return always([&to_ = to_, s, call] { to_.transformer.backward_weight(s, to_.context, call->args); });
  }

  Issue norm(const Instruction& i, StreamRef s, const Addends& addends) const {
    const bool is_norm = i.kind == InstructionKind::norm, adds = !is_norm || i.adds_residual;
    model::Transformer::Residual residual;
    model::Transformer::Norm norm;
    if (adds) {
      const int before = i.segment - 1;
      residual = {
          .segment = before,
          .weights = weights(before),
          .sum = to_.plan.sizes.own_rows(to_.buffers.product(i.lane)),
          .residual = has_norm(program_.kind(before)) ? to_.buffers.own_rows(input_buffer(program_, i, before)) : View(),
          .out = to_.buffers.own_rows(BufferId{BufferKind::output, before, i.slot})};
    }
    if (is_norm) {
      norm = {.segment = i.segment,
              .weights = weights(i.segment),
              .input = to_.buffers.own_rows(input_buffer(program_, i, i.segment)),
              .norm = to_.buffers.own_norm(i)};
    }
    if (!is_norm) return always([&to_ = to_, s, residual] { to_.transformer.add_residual(s, residual); });
    if (!adds) return always([&to_ = to_, s, norm] { to_.transformer.norm_forward(s, to_.context, norm); });
    if (!addends)
      return always(
          [&to_ = to_, s, residual, norm] { to_.transformer.add_and_norm(s, to_.context, {residual.sum}, residual, norm); });
    return always([&to_ = to_, &group = to_.groups.of(parallel::exchange_group), s, residual, norm, addends] {
      to_.transformer.add_and_norm(s, to_.context, *addends, residual, norm);
      group.release_addends(s);
    });
  }

  Issue norm_backward(const Instruction& i, StreamRef s, const Addends& addends) const {
    const View product = to_.buffers.norm_gradient(i.lane);
    const model::SegmentGradients before = to_.buffers.output_gradient(input_gradient_buffer(program_, i));
    const model::Transformer::NormBackward args{
        .forward = {.segment = i.segment,
                    .weights = weights(i.segment),
                    .input = to_.buffers.own_rows(input_buffer(program_, i, i.segment)),
                    .norm = to_.buffers.own_norm(i)},
        .weight_gradients = weight_gradients(i.segment),
        .out_gradient = {to_.plan.sizes.own_rows(product)},
        .residual_gradient = has_output(program_.kind(i.segment))
                                 ? to_.buffers.own_rows(output_gradient_buffer(program_, i, i.segment))
                                 : View(),
        .input_gradient = to_.plan.sizes.own_rows(before.output),
        .input_scale = before.output_scale,
        .workspace = to_.buffers.exchange_workspace,
        .accumulate = i.accumulate};
    if (!addends) return always([&to_ = to_, s, args] { to_.transformer.norm_backward(s, to_.context, args); });
    return always([&to_ = to_, &group = to_.groups.of(parallel::exchange_group), s, args, addends] {
      model::Transformer::NormBackward by_addends = args;
      by_addends.out_gradient = *addends;
      to_.transformer.norm_backward(s, to_.context, by_addends);
      group.release_addends(s);
    });
  }

  // Rounds this rank's rows of a tensor to the rows of its FP8 operand, with the scale that is there.
  Issue round(View tensor, View values, View scale, StreamRef s) const {
    const ops::Quantized own{.values = to_.plan.sizes.own_rows(values), .transposed = {}, .scale = scale};
    return always(
        [&to_ = to_, s, own_rows = to_.plan.sizes.own_rows(tensor), own] { ops::quantize(s, to_.context, own_rows, own); });
  }

  // The whole tensor that a collective of a pass is over.
  View pass_tensor(const Instruction& i) const {
    using enum model::PassTensor;
    const auto input = [&] { return to_.buffers.output_gradient(i.collective.destination); };
    switch (*i.collective.tensor) {
      case product: return to_.buffers.product(i.lane);
      case model::PassTensor::norm: return to_.buffers.norm(i).out;
      case norm_scale: return to_.buffers.norm(i).scale;
      case norm_values: return to_.buffers.norm(i).values;
      case statistics: return to_.buffers.statistics(i.lane);
      case activation_scale: return to_.buffers.forward_activations(i).scale;
      case norm_gradient: return to_.buffers.norm_gradient(i.lane);
      case input_gradient: return input().output;
      case input_scale: return input().output_scale;
      case input_values: return input().output_values;
      case gradient_scale: return to_.buffers.gradients_of(program_, i).scale;
    }
    throw InternalError("bind_instructions: unknown tensor of a pass");
  }

  Issue collective(const Instruction& i, StreamRef s, const Addends& addends) const {
    const parallel::Collective& c = i.collective;
    comm::Communicator& group = to_.groups.of(*parallel::collective_group(i));
    View whole, own;
    switch (c.destination.kind) {
      case BufferKind::gradient_sums: return reduce_gradients(i, s);
      case BufferKind::scalars: whole = to_.buffers.scalars; break;
      case BufferKind::arrival: whole = to_.buffers.arrival; break;
      case BufferKind::weight_scales: whole = to_.buffers.weight_scales(i.bucket); break;
      case BufferKind::weights: whole = to_.buffers.bucket_weights(i.bucket), own = to_.buffers.own_weights(i.bucket); break;
      default:
        whole = pass_tensor(i);
        if (c.operation != Operation::reduce_scatter && c.operation != Operation::all_gather)
          break;  // ranks have no shares of it
        own =
            c.tensor == model::PassTensor::statistics ? to_.transformer.own_statistics(whole) : to_.plan.sizes.own_rows(whole);
    }
    const std::function<void()> work = [&]() -> std::function<void()> {
      switch (c.operation) {
        case Operation::sum: return [&group, s, whole] { group.all_reduce(s, whole); };
        case Operation::max:
        case Operation::barrier: return [&group, s, whole] { group.all_reduce(s, whole, comm::Reduction::max); };
        case Operation::reduce_scatter:
          if (addends) return [&group, s, whole, own, addends] { *addends = group.reduce_scatter_addends(s, whole, own); };
          return [&group, s, whole, own] { group.reduce_scatter(s, whole, own); };
        case Operation::all_gather:
          if (c.into_free) return [&group, s, own, whole] { group.all_gather_into_free(s, own, whole); };
          return [&group, s, own, whole] { group.all_gather(s, own, whole); };
      }
      throw InternalError("bind_instructions: unknown operation of a collective");
    }();
    // Kernels push if little is computed meanwhile.
    const auto found = to_.groups.by_links.find(parallel::exchange_group);
    if (found == to_.groups.by_links.end() || found->second.get() != &group) return always(work);
    return always([links = found->second.get(), longest = to_.plan.exchanges.longest_beside(i.beside), work] {
      links->set_longest_by_kernel(longest);
      work();
    });
  }

  Issue reduce_gradients(const Instruction& i, StreamRef s) const {
    comm::Communicator& group = to_.groups.of(*parallel::collective_group(i));
    const View kept = to_.buffers.kept_gradient(i.bucket);
    if (i.collective.source == i.collective.destination)  // reduced already, in the part that this rank keeps
      return always([&group, s, kept] { group.all_reduce(s, kept); });
    const View whole = to_.buffers.bucket_gradients(i.bucket);
    if (i.collective.operation == Operation::sum) return always([&group, s, whole] { group.all_reduce(s, whole); });
    const View shard = to_.buffers.gradient_shard(i.bucket);
    if (to_.plan.zero < 2) return always([&group, s, whole, shard] { group.reduce_scatter(s, whole, shard); });
    return always([&group, s, whole, shard, kept, accumulate = i.accumulate] {
      group.reduce_scatter(s, whole, shard);
      if (accumulate) {
        ops::add(s, shard, kept);
      } else {
        s.copy(kept.data, shard.data, shard.bytes());
      }
    });
  }

  Issue gradient_norm(StreamRef s) const {
    const View squares = to_.buffers.scalars.rows(0, 1), losses = to_.buffers.scalars.rows(1, 2);
    return always([&to_ = to_, s, squares, losses, counts_loss = to_.plan.counts_loss()] {
      ops::sum_of_squares(s, to_.context, to_.buffers.norm_ranges, squares);
      if (!counts_loss) s.zero(losses.data, losses.bytes());  // they still hold the last step's sums
    });
  }

  Issue scale_weights(const Instruction& i, StreamRef s) const {
    return always([&to_ = to_, s, &list = to_.buffers.quantized_weights(i.bucket)] { ops::find_scales(s, to_.context, list); });
  }

  Issue quantize_weights(const Instruction& i, StreamRef s) const {
    return always(
        [&to_ = to_, s, &list = to_.buffers.quantized_weights(i.bucket)] { ops::quantize_all(s, to_.context, list); });
  }

  Issue update(StreamRef s) const {
    return [&to_ = to_, s](const StepInputs& inputs, Event*) {
      ops::norm_to_clip(s, {.sum_of_squares = to_.buffers.scalars.rows(0, 1),
                            .loss = to_.buffers.scalars.rows(1, 1),
                            .ignored = to_.buffers.scalars.rows(2, 1),
                            .targets = to_.plan.tokens_per_step(),
                            .update = inputs.update,
                            .optimizer_state = to_.buffers.optimizer_state});
      ops::adamw(s, {.table = to_.buffers.adamw_table,
                     .gradients = to_.buffers.kept_gradients,
                     .master = to_.buffers.master,
                     .m = to_.buffers.exp_avg,
                     .v = to_.buffers.exp_avg_sq,
                     .weights = to_.buffers.weights,
                     .optimizer_state = to_.buffers.optimizer_state});
    };
  }

  const BindingContext& to_;
  const parallel::Program& program_;
};

}  // namespace

std::vector<Issue> bind_instructions(const BindingContext& to, const parallel::Program& program,
                                     const std::vector<StreamRef>& streams) {
  return Binder(to, program).bind(streams);
}

}  // namespace plait::runtime
