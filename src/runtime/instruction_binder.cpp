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

}  // namespace

std::vector<Issue> InstructionBinder::bind(const Program& program, const std::vector<StreamRef>& streams) const {
  std::vector<Issue> issues;
  Addends before;  // of the instruction before
  for (int n = 0; n < static_cast<int>(program.instructions.size()); ++n) {
    const Instruction& i = program.at(n);
    const Addends addends = addends_of(program, n);
    issues.push_back(issue_of(program, i, streams[static_cast<std::size_t>(i.stream)], addends ? addends : before));
    before = addends;
  }
  return issues;
}

InstructionBinder::Addends InstructionBinder::addends_of(const Program& program, int n) const {
  const Instruction& i = program.at(n);
  if (!parallel::communicates_in_pass(i) || i.collective.operation != Operation::reduce_scatter) return nullptr;
  if (n + 1 == static_cast<int>(program.instructions.size())) return nullptr;
  const Instruction& next = program.at(n + 1);
  const bool norms = next.kind == parallel::InstructionKind::norm || next.kind == parallel::InstructionKind::norm_backward;
  const bool same = next.stream == i.stream && next.segment == i.segment && next.micro_batch == i.micro_batch;
  return norms && same ? std::make_shared<std::vector<View>>() : nullptr;
}

Issue InstructionBinder::issue_of(const Program& program, const Instruction& i, StreamRef s, const Addends& addends) const {
  using enum parallel::InstructionKind;
  switch (i.kind) {
    case load_batch: return InstructionBinder::load_batch(i, s);
    case receive_activation:
    case receive_gradient:
    case send_activation:
    case send_gradient: return message(program, i, s);
    case add_residual:
    case parallel::InstructionKind::norm: return InstructionBinder::norm(program, i, s, addends);
    case round_norm: {
      const model::NormActivations norm = buffers_.norm(i);
      return round(norm.out, norm.values, norm.scale, s);
    }
    case forward: return InstructionBinder::forward(program, i, s);
    case loss: return InstructionBinder::loss(program, i, s);
    case backward_input:
    case backward_weight: return backward(program, i, s);
    case norm_backward: return InstructionBinder::norm_backward(program, i, s, addends);
    case round_gradient: {
      const model::SegmentGradients before = buffers_.output_gradient(input_gradient_buffer(program, i));
      return round(before.output, before.output_values, before.output_scale, s);
    }
    case gradient_norm: return InstructionBinder::gradient_norm(s);
    case update: return InstructionBinder::update(s);
    case scale_weights: return InstructionBinder::scale_weights(i, s);
    case quantize_weights: return InstructionBinder::quantize_weights(i, s);
    case parallel::InstructionKind::collective: return InstructionBinder::collective(program, i, s, addends);
  }
  throw InternalError("InstructionBinder: unknown instruction kind");
}

int InstructionBinder::place_of(const Program& program, const Instruction& i) const {
  const bool sends = parallel::is_send(i.kind);
  const std::vector<comm::p2p::Place>& places =
      (sends ? groups_.outgoing : groups_.incoming).at(program.stream_of(i).peer)->places();
  if (places.empty()) return -1;
  const auto [chunk, slot] = sends ? parallel::place_filled(i) : parallel::place_received(i);
  const bool forward =
      i.kind == parallel::InstructionKind::send_activation || i.kind == parallel::InstructionKind::receive_activation;
  const std::string name =
      parallel::message_item({forward ? parallel::BufferKind::input : parallel::BufferKind::received_gradient, chunk, slot});
  const auto it = std::find_if(places.begin(), places.end(), [&](const comm::p2p::Place& place) { return place.name == name; });
  require(it != places.end(), "InstructionBinder: " + to_string(i) + " has no place called '" + name + "'");
  return static_cast<int>(it - places.begin());
}

Issue InstructionBinder::message(const Program& program, const Instruction& i, StreamRef s) const {
  const View data = buffers_.message(program, i);
  const int place = place_of(program, i), peer = program.stream_of(i).peer;
  if (parallel::is_send(i.kind))
    return always([&link = *groups_.outgoing.at(peer), s, data, place] { link.send(s, data, place); });
  return [&link = *groups_.incoming.at(peer), s, data, place](const StepInputs&, Event* ready) {
    link.receive(s, data, ready, place);
  };
}

Issue InstructionBinder::load_batch(const Instruction& i, StreamRef s) const {
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

Issue InstructionBinder::forward(const Program& program, const Instruction& i, StreamRef s) const {
  struct Call {
    model::SegmentActivations activations;
    model::Transformer::Forward args;
  };
  const auto call = std::make_shared<Call>(Call{buffers_.forward_activations(i), {}});
  const model::SegmentKind kind = program.kind(i.segment);
  const bool partial = program.segment(i.segment).partial, has_residual = !partial && has_norm(kind) && has_output(kind);
  call->args = {.segment = i.segment,
                .range = {i.part, parts_of(program.segment(i.segment), parallel::InstructionKind::forward)},
                .weights = weights(i.segment),
                .quantized = quantized(i.segment),
                .batch = batch(i),
                .norm = buffers_.norm(i),
                .residual = has_residual ? buffers_.own_rows(input_buffer(program, i, i.segment)) : View(),
                .output = partial ? buffers_.product(i.lane) : call->activations.output,
                .is_partial = partial,
                .activations = &call->activations};
  if (!partial || has_output(kind)) return always([this, s, call] { transformer_.forward(s, context_, call->args); });
  const model::Transformer::Loss statistics{.logits = call->activations.logits,
                                            .targets = call->args.batch.targets,
                                            .statistics = buffers_.statistics(i.lane),
                                            .losses = {}};
  return always([this, s, call, statistics] {
    transformer_.forward(s, context_, call->args);
    transformer_.loss_statistics(s, statistics);
  });
}

Issue InstructionBinder::loss(const Program& program, const Instruction& i, StreamRef s) const {
  const bool train = &program == &plan_.train;
  const auto per_token = static_cast<float>(1.0 / static_cast<double>(plan_.tokens_per_step()));
  const model::SegmentActivations activations = buffers_.forward_activations(i);
  const model::Transformer::Loss args{.logits = activations.logits,
                                      .targets = batch(i).targets,
                                      .statistics = buffers_.statistics(i.lane),
                                      .losses = activations.losses,
                                      .train = train,
                                      .scale = per_token};
  if (!plan_.counts_loss()) return always([this, s, args] { transformer_.loss(s, args); });
  const View sums = train ? buffers_.scalars.rows(1, 2) : buffers_.evaluation_sums;
  return [this, s, args, sums, per_token, train, accumulate = i.accumulate](const StepInputs& inputs, Event*) {
    const bool add = train ? accumulate : inputs.add_losses;
    transformer_.loss(s, args);
    ops::sum(s, context_, args.losses, sums.rows(0, 1), per_token, add);
    ops::count_ignored(s, args.targets, sums.rows(1, 1), add);
  };
}

Issue InstructionBinder::backward(const Program& program, const Instruction& i, StreamRef s) const {
  struct Call {
    model::SegmentActivations activations;
    model::SegmentGradients gradients;
    model::Transformer::Backward args;
  };
  const auto call = std::make_shared<Call>(Call{buffers_.backward_activations(i), buffers_.gradients_of(program, i), {}});
  call->args = {.segment = i.segment,
                .range = {i.part, parts_of(program.segment(i.segment), parallel::InstructionKind::backward_input)},
                .weights = weights(i.segment),
                .quantized = quantized(i.segment),
                .weight_gradients = weight_gradients(i.segment),
                .batch = batch(i),
                .norm = buffers_.norm(i),
                .activations = &call->activations,
                .gradients = &call->gradients,
                .scale_found = has_output(program.kind(i.segment)) &&
                               output_gradient_buffer(program, i, i.segment).kind == parallel::BufferKind::output_gradient,
                .norm_gradient = buffers_.norm_gradient(i.lane),
                .accumulate = i.accumulate,
                .accumulate_tokens = i.accumulate_tokens};
  if (i.kind == parallel::InstructionKind::backward_input)
    return always([this, s, call] { transformer_.backward_input(s, context_, call->args); });
  return always([this, s, call] { transformer_.backward_weight(s, context_, call->args); });
}

Issue InstructionBinder::norm(const Program& program, const Instruction& i, StreamRef s, const Addends& addends) const {
  const bool is_norm = i.kind == parallel::InstructionKind::norm, adds = !is_norm || i.adds_residual;
  model::Transformer::Residual residual;
  model::Transformer::Norm norm;
  if (adds) {
    const int before = i.segment - 1;
    residual = {.segment = before,
                .weights = weights(before),
                .sum = plan_.sizes.own_rows(buffers_.product(i.lane)),
                .residual = has_norm(program.kind(before)) ? buffers_.own_rows(input_buffer(program, i, before)) : View(),
                .out = buffers_.own_rows(parallel::BufferId{parallel::BufferKind::output, before, i.slot})};
  }
  if (is_norm) {
    norm = {.segment = i.segment,
            .weights = weights(i.segment),
            .input = buffers_.own_rows(input_buffer(program, i, i.segment)),
            .norm = buffers_.own_norm(i)};
  }
  if (!is_norm) return always([this, s, residual] { transformer_.add_residual(s, residual); });
  if (!adds) return always([this, s, norm] { transformer_.norm_forward(s, context_, norm); });
  if (!addends)
    return always([this, s, residual, norm] { transformer_.add_and_norm(s, context_, {residual.sum}, residual, norm); });
  return always([this, &group = groups_.of(parallel::exchange_group), s, residual, norm, addends] {
    transformer_.add_and_norm(s, context_, *addends, residual, norm);
    group.release_addends(s);
  });
}

Issue InstructionBinder::norm_backward(const Program& program, const Instruction& i, StreamRef s,
                                       const Addends& addends) const {
  const View product = buffers_.norm_gradient(i.lane);
  const model::SegmentGradients before = buffers_.output_gradient(input_gradient_buffer(program, i));
  const model::Transformer::NormBackward args{
      .forward = {.segment = i.segment,
                  .weights = weights(i.segment),
                  .input = buffers_.own_rows(input_buffer(program, i, i.segment)),
                  .norm = buffers_.own_norm(i)},
      .weight_gradients = weight_gradients(i.segment),
      .out_gradient = {plan_.sizes.own_rows(product)},
      .residual_gradient =
          has_output(program.kind(i.segment)) ? buffers_.own_rows(output_gradient_buffer(program, i, i.segment)) : View(),
      .input_gradient = plan_.sizes.own_rows(before.output),
      .input_scale = before.output_scale,
      .workspace = buffers_.exchange_workspace,
      .accumulate = i.accumulate};
  if (!addends) return always([this, s, args] { transformer_.norm_backward(s, context_, args); });
  return always([this, &group = groups_.of(parallel::exchange_group), s, args, addends] {
    model::Transformer::NormBackward by_addends = args;
    by_addends.out_gradient = *addends;
    transformer_.norm_backward(s, context_, by_addends);
    group.release_addends(s);
  });
}

Issue InstructionBinder::round(View tensor, View values, View scale, StreamRef s) const {
  const ops::Quantized own{.values = plan_.sizes.own_rows(values), .transposed = {}, .scale = scale};
  return always([this, s, own_rows = plan_.sizes.own_rows(tensor), own] { ops::quantize(s, context_, own_rows, own); });
}

View InstructionBinder::pass_tensor(const Program& program, const Instruction& i) const {
  using enum model::PassTensor;
  const auto input = [&] { return buffers_.output_gradient(i.collective.destination); };
  switch (*i.collective.tensor) {
    case product: return buffers_.product(i.lane);
    case model::PassTensor::norm: return buffers_.norm(i).out;
    case norm_scale: return buffers_.norm(i).scale;
    case norm_values: return buffers_.norm(i).values;
    case statistics: return buffers_.statistics(i.lane);
    case activation_scale: return buffers_.forward_activations(i).scale;
    case norm_gradient: return buffers_.norm_gradient(i.lane);
    case input_gradient: return input().output;
    case input_scale: return input().output_scale;
    case input_values: return input().output_values;
    case gradient_scale: return buffers_.gradients_of(program, i).scale;
  }
  throw InternalError("InstructionBinder: unknown tensor of a pass");
}

Issue InstructionBinder::collective(const Program& program, const Instruction& i, StreamRef s, const Addends& addends) const {
  const parallel::Collective& c = i.collective;
  comm::Communicator& group = groups_.of(*parallel::collective_group(i));
  View whole, own;
  switch (c.destination.kind) {
    case parallel::BufferKind::gradient_sums: return reduce_gradients(i, s);
    case parallel::BufferKind::scalars: whole = buffers_.scalars; break;
    case parallel::BufferKind::arrival: whole = buffers_.arrival; break;
    case parallel::BufferKind::weight_scales: whole = buffers_.weight_scales(i.bucket); break;
    case parallel::BufferKind::weights: whole = buffers_.bucket_weights(i.bucket), own = buffers_.own_weights(i.bucket); break;
    default:
      whole = pass_tensor(program, i);
      if (c.operation != Operation::reduce_scatter && c.operation != Operation::all_gather) break;  // nobody has a share of it
      own = c.tensor == model::PassTensor::statistics ? transformer_.own_statistics(whole) : plan_.sizes.own_rows(whole);
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
    throw InternalError("InstructionBinder: unknown operation of a collective");
  }();
  // Kernels push where little is computed meanwhile.
  const auto found = groups_.by_links.find(parallel::exchange_group);
  if (found == groups_.by_links.end() || found->second.get() != &group) return always(work);
  return always([links = found->second.get(), longest = plan_.exchanges.longest_beside(i.beside), work] {
    links->set_longest_by_kernel(longest);
    work();
  });
}

Issue InstructionBinder::reduce_gradients(const Instruction& i, StreamRef s) const {
  comm::Communicator& group = groups_.of(*parallel::collective_group(i));
  const View kept = buffers_.kept_gradient(i.bucket);
  if (i.collective.source == i.collective.destination)  // what was reduced already, in the part that this rank keeps
    return always([&group, s, kept] { group.all_reduce(s, kept); });
  const View whole = buffers_.bucket_gradients(i.bucket);
  if (i.collective.operation == Operation::sum) return always([&group, s, whole] { group.all_reduce(s, whole); });
  const View shard = buffers_.gradient_shard(i.bucket);
  if (plan_.zero < 2) return always([&group, s, whole, shard] { group.reduce_scatter(s, whole, shard); });
  return always([&group, s, whole, shard, kept, accumulate = i.accumulate] {
    group.reduce_scatter(s, whole, shard);
    if (accumulate) {
      ops::add(s, shard, kept);
    } else {
      s.copy(kept.data, shard.data, shard.bytes());
    }
  });
}

Issue InstructionBinder::gradient_norm(StreamRef s) const {
  const View squares = buffers_.scalars.rows(0, 1), losses = buffers_.scalars.rows(1, 2);
  return always([this, s, squares, losses, counts_loss = plan_.counts_loss()] {
    ops::sum_of_squares(s, context_, buffers_.norm_ranges, squares);
    if (!counts_loss) s.zero(losses.data, losses.bytes());  // what is there are the last step's sums
  });
}

Issue InstructionBinder::scale_weights(const Instruction& i, StreamRef s) const {
  return always([this, s, &list = buffers_.quantized_weights(i.bucket)] { ops::find_scales(s, context_, list); });
}

Issue InstructionBinder::quantize_weights(const Instruction& i, StreamRef s) const {
  return always([this, s, &list = buffers_.quantized_weights(i.bucket)] { ops::quantize_all(s, context_, list); });
}

Issue InstructionBinder::update(StreamRef s) const {
  return [this, s](const StepInputs& inputs, Event*) {
    ops::norm_to_clip(s, {.sum_of_squares = buffers_.scalars.rows(0, 1),
                          .loss = buffers_.scalars.rows(1, 1),
                          .ignored = buffers_.scalars.rows(2, 1),
                          .targets = plan_.tokens_per_step(),
                          .update = inputs.update,
                          .optimizer_state = buffers_.optimizer_state});
    ops::adamw(s, {.table = buffers_.adamw_table,
                   .gradients = buffers_.kept_gradients,
                   .master = buffers_.master,
                   .m = buffers_.exp_avg,
                   .v = buffers_.exp_avg_sq,
                   .weights = buffers_.weights,
                   .optimizer_state = buffers_.optimizer_state});
  };
}

}  // namespace plait::runtime
