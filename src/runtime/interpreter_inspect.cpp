// Looking into a rank: evaluation, logits, times, and single steps in which every tensor can be seen.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "parallel/program_set.h"
#include "runtime/interpreter.h"

namespace plait::runtime {
namespace {

// What comes once in a step, behind its micro-batches.
bool follows_micro_batches(parallel::InstructionKind kind) {
  return kind == parallel::InstructionKind::meet || kind == parallel::InstructionKind::reduce_gradients ||
         kind == parallel::InstructionKind::gradient_norm || kind == parallel::InstructionKind::reduce_scalars ||
         kind == parallel::InstructionKind::update || kind == parallel::InstructionKind::gather_weights;
}

}  // namespace

std::vector<float> Interpreter::synchronize_profile(BatchSource& batches, const UpdateSettings& settings) {
  require(pending_.empty(), "Interpreter::synchronize_profile: take results first");
  const std::size_t count = plan_.train.instructions.size();
  struct Times final : IssueObserver {
    std::vector<std::pair<Event, Event>> events;
    void waiting(int n, StreamRef s) override { s.record(events[static_cast<std::size_t>(n)].first); }
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
  synchronize();  // weights gathered by the reduce stream
  const StreamRef compute = compute_stream();
  IssueObserver nobody;
  for (int mb = 0; mb < micro_batches; ++mb) {
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

void Interpreter::synchronize_scan(View view, const std::function<void(std::span<const double>)>& look) {
  const StreamRef s = compute_stream();
  const std::size_t chunk = staging_bytes / size_of(view.dtype);
  std::vector<double> values;
  for (std::size_t done = 0; done < static_cast<std::size_t>(view.elements()); done += chunk) {
    const std::size_t count = std::min(chunk, static_cast<std::size_t>(view.elements()) - done);
    s.copy(pinned_.data(), static_cast<char*>(view.data) + done * size_of(view.dtype), count * size_of(view.dtype));
    s.synchronize();
    values.resize(count);
    const auto convert = [&](const auto* from) {
      for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<double>(from[i]);
    };
    switch (view.dtype) {
      case DType::f32: convert(static_cast<const float*>(pinned_.data())); break;
      case DType::f64: convert(static_cast<const double*>(pinned_.data())); break;
      case DType::i32: convert(static_cast<const std::int32_t*>(pinned_.data())); break;
      case DType::u8: convert(static_cast<const std::uint8_t*>(pinned_.data())); break;
      case DType::bf16:
        for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(static_cast<const BFloat16*>(pinned_.data())[i]);
        break;
    }
    look(values);
  }
}

std::vector<double> Interpreter::synchronize_read(View view) {
  std::vector<double> all;
  all.reserve(static_cast<std::size_t>(view.elements()));
  synchronize_scan(view, [&](std::span<const double> part) { all.insert(all.end(), part.begin(), part.end()); });
  return all;
}

std::vector<WrittenTensor> Interpreter::written_by(const parallel::Program& program, const parallel::Instruction& i) {
  std::vector<WrittenTensor> written;
  const auto spec_of = [](const std::vector<model::TensorSpec>& specs, const std::string& name) -> const model::TensorSpec& {
    const auto it = std::find_if(specs.begin(), specs.end(), [&](const model::TensorSpec& spec) { return spec.name == name; });
    require(it != specs.end(), "written_by: no tensor of the block is called " + name);
    return *it;
  };
  if (i.kind == parallel::InstructionKind::forward) {
    const auto specs = model::activation_specs(plan_.sizes, i.block);
    for (const model::NamedView& v : model::named(buffers_.forward_activations(i))) {
      const model::TensorSpec& spec = spec_of(specs, v.name);
      if (spec.role != model::TensorRole::workspace) written.push_back({v.name, v.view, spec.split});
    }
  } else if (i.kind == parallel::InstructionKind::backward_input) {
    const auto specs = model::gradient_specs(plan_.sizes, i.block);
    for (const model::NamedView& v : model::named(buffers_.block_gradients_of(program, i))) {
      const model::TensorSpec& spec = spec_of(specs, v.name);
      if (spec.role != model::TensorRole::workspace) written.push_back({parallel::gradient_name(v.name), v.view, spec.split});
    }
    written.push_back(
        {parallel::gradient_name("the block's input"), buffers_.input_gradient(program, i), model::Split::residual});
  } else if (i.kind == parallel::InstructionKind::backward_weight) {
    for (std::size_t p = 0; p < plan_.parameters.size(); ++p) {
      if (plan_.parameters[p].block != i.block) continue;
      const parallel::Range range = plan_.flat.parameter_gradient(p);
      written.push_back({parallel::gradient_name(plan_.parameters[p].name), buffers_.gradients.rows(range.first, range.count),
                         model::Split::none, static_cast<int>(p)});
    }
  }
  return written;
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
    if (i.block < 0) return;
    s.synchronize();
    observe(i, written_by(plan_.train, i));
  };
  execute(train_, batches, {}, after_each, [](const parallel::Instruction& i) { return !follows_micro_batches(i.kind); });
  synchronize();
}

bool Interpreter::synchronize_is_finite(View view) {
  bool finite = true;
  synchronize_scan(view, [&](std::span<const double> part) {
    finite = finite && std::all_of(part.begin(), part.end(), [](double v) { return std::isfinite(v); });
  });
  return finite;
}

std::optional<NonFinite> Interpreter::synchronize_find_non_finite(BatchSource& batches) {
  synchronize();
  std::optional<NonFinite> found;
  for (std::size_t p = 0; p < plan_.parameters.size() && !found; ++p) {
    const parallel::Range range = plan_.flat.parameter(p);
    if (!synchronize_is_finite(buffers_.weights.rows(range.first, range.count))) {
      found = NonFinite{-1, "weights: " + plan_.parameters[p].name};
    }
  }
  synchronize_step(batches, [&](const parallel::Instruction& i, const std::vector<WrittenTensor>& written) {
    for (const WrittenTensor& tensor : written) {
      if (!found && !synchronize_is_finite(tensor.view)) {
        found = NonFinite{execution_order(i, plan_.sizes.shape.blocks()), to_string(i) + ": " + tensor.name};
      }
    }
  });
  return found;
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
  struct NoBatches final : BatchSource {
    HostBatch next() override { throw InternalError("synchronize_warm_up: loads nothing"); }
    void release(StreamRef) override {}
  } none;
  IssueObserver nobody;
  const auto do_part = [&](Prepared& prepared, const Part& part) {
    execute(prepared, none, {}, nobody, part);
    synchronize();
  };
  // The first micro-batch overwrites gradients and the second adds to them: all kinds of products there are.
  do_part(train_, [](const parallel::Instruction& i) { return i.block >= 0 && i.micro_batch < 2; });
  do_part(evaluate_, [](const parallel::Instruction& i) { return i.block >= 0; });
  // Once halted, an update changes nothing.
  auto* const halted = static_cast<ops::OptimizerState*>(pinned_.data());
  *halted = {.grad_norm = 0, .clip_factor = 0, .halted = 1, .loss = 0};
  compute.copy(buffers_.optimizer_state.data, halted, sizeof(*halted));
  do_part(train_, [](const parallel::Instruction& i) { return follows_micro_batches(i.kind); });
  compute.zero(buffers_.optimizer_state.data, buffers_.optimizer_state.bytes());
  synchronize();
  context_->set_tuning(false);
}

std::int64_t execution_order(const parallel::Instruction& i, int blocks) {
  const bool forward = i.kind == parallel::InstructionKind::forward;
  const int within =
      forward ? i.block : blocks + 2 * (blocks - 1 - i.block) + (i.kind == parallel::InstructionKind::backward_weight ? 1 : 0);
  return std::int64_t{i.micro_batch} * 3 * blocks + within;
}

}  // namespace plait::runtime
