#include "runtime/instruction_binder.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/error.h"
#include "ops/adamw.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "parallel/program_set.h"

namespace plait::runtime {
namespace {

// Of what needs nothing from outside.
template <typename Work>
Issue always(Work work) {
  return [work = std::move(work)](const StepInputs&, Event*) { work(); };
}

void nothing() {}

}  // namespace

Issue InstructionBinder::bind(const Program& program, const Instruction& i, StreamRef s) const {
  Issue issue = issue_of(program, i, s);
  const auto found = groups_.by_links.find(parallel::groups::tensor);
  if (found == groups_.by_links.end() || i.group != parallel::groups::tensor) return issue;
  return [links = found->second.get(), longest = plan_.exchanges.longest_beside(i.beside), issue = std::move(issue)](
             const StepInputs& inputs, Event* ready) {
    links->set_longest_by_kernel(longest);
    issue(inputs, ready);
  };
}

Issue InstructionBinder::issue_of(const Program& program, const Instruction& i, StreamRef s) const {
  using enum parallel::InstructionKind;
  switch (i.kind) {
    case load_batch: return InstructionBinder::load_batch(i, s);
    case receive_activation:
    case receive_gradient:
    case send_activation:
    case send_gradient: return message(program, i, s);
    case exchange_forward:
    case exchange_recompute: return InstructionBinder::exchange_forward(program, i, s);
    case forward: return InstructionBinder::forward(program, i, s);
    case exchange_loss: {
      const View all = buffers_.statistics(i.lane);
      return always(
          [&group = groups_.of(i.group), s, own = transformer_.own_statistics(all), all] { group.all_gather(s, own, all); });
    }
    case loss: return InstructionBinder::loss(program, i, s);
    case exchange_backward: return InstructionBinder::exchange_backward(program, i, s);
    case backward_input:
    case backward_weight: return backward(program, i, s);
    case meet:
      return always([&group = groups_.of(i.group), s, arrival = buffers_.arrival] {
        group.all_reduce(s, arrival, comm::Reduction::max);
      });
    case reduce_gradients: return InstructionBinder::reduce_gradients(i, s);
    case gradient_norm: return InstructionBinder::gradient_norm(s);
    case reduce_scalars:
      return always([&group = groups_.of(i.group), s, scalars = buffers_.scalars] { group.all_reduce(s, scalars); });
    case update: return InstructionBinder::update(s);
    case gather_weights:
      return always([&group = groups_.of(i.group), s, own = buffers_.own_weights(i.bucket),
                     all = buffers_.bucket_weights(i.bucket)] { group.all_gather(s, own, all); });
    case exchange_forward_scale: return share_scales(i, buffers_.forward_activations(i).scale, s);
    case exchange_backward_scale: return share_scales(i, buffers_.gradients_of(program, i).scale, s);
    case exchange_weight_scales: return share_scales(i, buffers_.weight_scales(i.bucket), s);
    case scale_weights: return InstructionBinder::scale_weights(i, s);
    case quantize_weights: return InstructionBinder::quantize_weights(i, s);
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
  const bool has_residual = !program.several && has_norm(kind) && has_output(kind);
  call->args = {.segment = i.segment,
                .part = i.part,
                .weights = weights(i.segment),
                .quantized = quantized(i.segment),
                .batch = batch(i),
                .norm = buffers_.norm(i),
                .residual = has_residual ? buffers_.own_rows(input_buffer(program, i, i.segment)) : View(),
                .output = program.several ? buffers_.product(i.lane) : call->activations.output,
                .is_partial = program.several,
                .activations = &call->activations};
  if (!program.several || has_output(kind)) return always([this, s, call] { transformer_.forward(s, context_, call->args); });
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
                .part = i.part,
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

std::function<void()> InstructionBinder::sum(View product, StreamRef s) const {
  comm::Communicator& group = groups_.of(parallel::groups::tensor);
  if (!plan_.sizes.split.sequence_parallel) return [&group, s, product] { group.all_reduce(s, product); };
  return [&group, s, product, own = plan_.sizes.own_rows(product)] { group.reduce_scatter(s, product, own); };
}

std::function<void()> InstructionBinder::gather(const Instruction& i, View tensor, const ops::Quantized& operand,
                                                StreamRef s) const {
  comm::Communicator& group = groups_.of(parallel::groups::tensor);
  if (operand.values) {
    const ops::Quantized own{.values = plan_.sizes.own_rows(operand.values), .transposed = {}, .scale = operand.scale};
    return [this, &group, s, own_rows = plan_.sizes.own_rows(tensor), own, bring = gather(i, operand.values, {}, s)] {
      group.all_reduce(s, own.scale, comm::Reduction::max);
      ops::quantize(s, context_, own_rows, own);
      bring();
    };
  }
  const View& whole = tensor;
  const View own = plan_.sizes.own_rows(whole);
  if (i.exchange.gathers_into_free()) return [&group, s, own, whole] { group.all_gather_into_free(s, own, whole); };
  return [&group, s, own, whole] { group.all_gather(s, own, whole); };
}

Issue InstructionBinder::exchange_forward(const Program& program, const Instruction& i, StreamRef s) const {
  model::Transformer::Residual residual;
  model::Transformer::Norm norm;
  if (i.exchange.sum) {
    const int before = i.segment - 1;
    residual = {.segment = before,
                .weights = weights(before),
                .sum = plan_.sizes.own_rows(buffers_.product(i.lane)),
                .residual = has_norm(program.kind(before)) ? buffers_.own_rows(input_buffer(program, i, before)) : View(),
                .out = buffers_.own_rows(parallel::BufferId{parallel::BufferKind::output, before, i.slot})};
  }
  if (i.exchange.norm) {
    norm = {.segment = i.segment,
            .weights = weights(i.segment),
            .input = buffers_.own_rows(input_buffer(program, i, i.segment)),
            .norm = buffers_.own_norm(i)};
  }
  std::function<void()> compute = nothing;
  if (i.exchange.sum && i.exchange.norm && plan_.sizes.split.sequence_parallel) {
    compute = [this, &group = groups_.of(parallel::groups::tensor), s, product = buffers_.product(i.lane), residual, norm] {
      transformer_.add_and_norm(s, context_, group.reduce_scatter_addends(s, product, residual.sum), residual, norm);
      group.release_addends(s);
    };
  } else if (i.exchange.sum && i.exchange.norm) {
    compute = [this, s, reduce = sum(buffers_.product(i.lane), s), residual, norm] {
      reduce();
      transformer_.add_and_norm(s, context_, {residual.sum}, residual, norm);
    };
  } else if (i.exchange.sum) {
    compute = [this, s, reduce = sum(buffers_.product(i.lane), s), residual] {
      reduce();
      transformer_.add_residual(s, residual);
    };
  } else if (i.exchange.norm) {
    compute = [this, s, norm] { transformer_.norm_forward(s, context_, norm); };
  }
  const model::NormActivations all = buffers_.norm(i);
  const ops::Quantized operand{.values = all.values, .transposed = {}, .scale = all.scale};
  const std::function<void()> bring = i.exchange.gather ? gather(i, all.out, operand, s) : nothing;
  return always([compute, bring] {
    compute();
    bring();
  });
}

Issue InstructionBinder::exchange_backward(const Program& program, const Instruction& i, StreamRef s) const {
  if (!i.exchange.norm) return always(gather(i, buffers_.whole(output_gradient_buffer(program, i, i.segment - 1)), {}, s));
  const View product = buffers_.norm_gradient(i.lane);
  const model::SegmentGradients before = buffers_.output_gradient(input_gradient_buffer(program, i));
  const model::Transformer::NormBackward args{
      .forward = {.segment = i.segment,
                  .weights = weights(i.segment),
                  .input = buffers_.own_rows(input_buffer(program, i, i.segment)),
                  .norm = buffers_.own_norm(i)},
      .weight_gradients = weight_gradients(i.segment),
      .out_gradient = {i.exchange.sum ? plan_.sizes.own_rows(product) : product},
      .residual_gradient =
          has_output(program.kind(i.segment)) ? buffers_.own_rows(output_gradient_buffer(program, i, i.segment)) : View(),
      .input_gradient = plan_.sizes.own_rows(before.output),
      .input_scale = before.output_scale,
      .workspace = buffers_.exchange_workspace,
      .accumulate = i.accumulate};
  const ops::Quantized operand{.values = before.output_values, .transposed = {}, .scale = before.output_scale};
  const std::function<void()> bring = i.exchange.gather ? gather(i, before.output, operand, s) : nothing;
  if (i.exchange.sum && plan_.sizes.split.sequence_parallel) {
    return always([this, &group = groups_.of(parallel::groups::tensor), s, product, args, bring] {
      model::Transformer::NormBackward in_parts = args;
      in_parts.out_gradient = group.reduce_scatter_addends(s, product, args.out_gradient.front());
      transformer_.norm_backward(s, context_, in_parts);
      group.release_addends(s);
      bring();
    });
  }
  const std::function<void()> reduce = i.exchange.sum ? sum(product, s) : nothing;
  return always([this, s, reduce, args, bring] {
    reduce();
    transformer_.norm_backward(s, context_, args);
    bring();
  });
}

Issue InstructionBinder::reduce_gradients(const Instruction& i, StreamRef s) const {
  const View kept = buffers_.kept_gradient(i.bucket);
  if (i.group != parallel::groups::replicas)  // what the data group has reduced already, in the part that this rank keeps
    return always([&group = groups_.of(i.group), s, kept] { group.all_reduce(s, kept); });
  comm::Communicator& data = groups_.of(i.group);
  const View whole = buffers_.bucket_gradients(i.bucket);
  if (plan_.zero == 0) return always([&data, s, whole] { data.all_reduce(s, whole); });
  const View shard = buffers_.gradient_shard(i.bucket);
  if (plan_.zero < 2) return always([&data, s, whole, shard] { data.reduce_scatter(s, whole, shard); });
  return always([&data, s, whole, shard, kept, accumulate = i.accumulate] {
    data.reduce_scatter(s, whole, shard);
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

Issue InstructionBinder::share_scales(const Instruction& i, View scales, StreamRef s) const {
  return always([&group = groups_.of(i.group), s, scales] { group.all_reduce(s, scales, comm::Reduction::max); });
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
