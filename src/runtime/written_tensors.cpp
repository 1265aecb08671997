#include "runtime/written_tensors.h"

#include <algorithm>

#include "core/error.h"
#include "runtime/interpreter.h"

namespace plait::runtime {

std::vector<WrittenTensor> written_by(const parallel::RankPlan& plan, const RankBuffers& buffers,
                                      const parallel::Instruction& i) {
  std::vector<WrittenTensor> written;
  const auto spec_of = [](const std::vector<model::TensorSpec>& specs, const std::string& name) -> const model::TensorSpec& {
    const auto it = std::find_if(specs.begin(), specs.end(), [&](const model::TensorSpec& spec) { return spec.name == name; });
    require(it != specs.end(), "written_by: no tensor of the segment is called " + name);
    return *it;
  };
  const auto add = [&](const std::vector<model::TensorSpec>& specs, const std::vector<model::NamedView>& views,
                       const auto& name_of) {
    for (const model::NamedView& v : views) {
      const model::TensorSpec& spec = spec_of(specs, v.name);
      if (spec.role == model::TensorRole::workspace || spec.role == model::TensorRole::beside_output) continue;
      written.push_back({name_of(v.name), v.view, i.segment, spec.split});
    }
  };
  const auto same = [](const std::string& name) { return name; };
  const parallel::Program& program = plan.train;
  const bool partial =
      i.segment < plan.sizes.shape.segments() && program.segment(i.segment).partial;  // part of a sum: no meaning yet
  // A tensor into which other ranks' rows are gathered is whole only behind the collective.
  const auto norm_views = [&](bool gathered) {
    const std::vector<model::TensorSpec> specs = model::norm_specs(plan.sizes, i.segment);
    std::vector<model::NamedView> views = model::named(buffers.norm(i));
    std::erase_if(views, [&](const model::NamedView& v) { return spec_of(specs, v.name).gathered != gathered; });
    add(specs, views, same);
  };
  switch (i.kind) {
    case parallel::InstructionKind::add_residual:
    case parallel::InstructionKind::norm:
      if (i.kind == parallel::InstructionKind::add_residual || i.adds_residual) {
        const parallel::BufferId output{parallel::BufferKind::output, i.segment - 1, i.slot};
        written.push_back({"output", buffers.own_rows(output), i.segment - 1, model::Split::residual});
      }
      if (i.kind == parallel::InstructionKind::norm) norm_views(false);
      break;
    case parallel::InstructionKind::collective:
      if (i.collective.tensor == model::PassTensor::norm) norm_views(true);
      return written;
    case parallel::InstructionKind::forward:
    case parallel::InstructionKind::loss: {
      if (i.part > 0) break;  // a part of a sum
      model::SegmentActivations activations = buffers.forward_activations(i);
      if (partial) activations.output = {};
      const bool loss = i.kind == parallel::InstructionKind::loss;
      if (!loss) activations.losses = {};
      // The loss writes the gradient of the logits over the logits.
      add(model::activation_specs(plan.sizes, i.segment), model::named(activations),
          [&](const std::string& name) { return loss && name == "logits" ? parallel::gradient_name(name) : name; });
      break;
    }
    case parallel::InstructionKind::backward_input: {
      if (i.part > 0) break;
      model::SegmentGradients gradients = buffers.gradients_of(program, i);
      const bool received = has_output(program.kind(i.segment)) &&
                            output_gradient_buffer(program, i, i.segment).kind == parallel::BufferKind::received_gradient;
      add(model::gradient_specs(plan.sizes, i.segment, received), model::named(gradients), parallel::gradient_name);
      if (!partial) {
        written.push_back({parallel::gradient_name("norm_out"), buffers.norm_gradient(i.lane), i.segment});
      }
      break;
    }
    case parallel::InstructionKind::norm_backward:
      written.push_back({parallel::gradient_name("the segment's input"), buffers.own_rows(input_gradient_buffer(program, i)),
                         i.segment, model::Split::residual});
      break;
    case parallel::InstructionKind::backward_weight: break;
    default: return written;
  }
  const bool norms = i.kind == parallel::InstructionKind::norm_backward;
  if (!norms && i.kind != parallel::InstructionKind::backward_weight) return written;
  for (std::size_t p = 0; p < plan.parameters.size(); ++p) {
    if (plan.parameters[p].segment != i.segment || plan.parameters[p].norm != norms) continue;
    const parallel::Range range = plan.flat.parameter_gradient(p);
    written.push_back({parallel::gradient_name(plan.parameters[p].name), buffers.gradients.rows(range.first, range.count),
                       i.segment, model::Split::none, static_cast<int>(p)});
  }
  return written;
}

std::int64_t execution_order(const parallel::Instruction& i, int segments) {
  using Kind = parallel::InstructionKind;
  constexpr int parts = 4;  // parts of a segment, in each direction
  const auto forward = [&](int part) { return parts * i.segment + part; };
  const auto backward = [&](int part) { return parts * (2 * segments + 1 - i.segment) + part; };
  const int within = [&] {
    switch (i.kind) {
      case Kind::forward: return forward(1);
      case Kind::loss: return forward(2);
      case Kind::backward_input: return backward(1);
      case Kind::norm_backward: return backward(2);
      case Kind::backward_weight: return backward(3);
      // Instructions between segments come in front of the pass that they lead to.
      default: return parallel::is_in_backward(i) ? backward(i.segment < segments && i.recomputed ? 0 : 3) : forward(0);
    }
  }();
  return std::int64_t{i.micro_batch} * 2 * parts * (segments + 1) + within;
}

std::optional<NonFinite> synchronize_find_non_finite(Interpreter& interpreter, BatchSource& batches) {
  interpreter.synchronize();
  const parallel::RankPlan& plan = interpreter.plan();
  TensorReader reader = interpreter.reader();
  std::optional<NonFinite> found;
  for (std::size_t p = 0; p < plan.parameters.size() && !found; ++p) {
    const parallel::Range range = plan.flat.parameter(p);
    if (!reader.synchronize_is_finite(interpreter.weights().rows(range.first, range.count))) {
      found = NonFinite{-1, "weights: " + plan.parameters[p].name};
    }
  }
  interpreter.synchronize_step(batches, [&](const parallel::Instruction& i, const std::vector<WrittenTensor>& written) {
    for (const WrittenTensor& tensor : written) {
      if (!found && !reader.synchronize_is_finite(tensor.view)) {
        found = NonFinite{execution_order(i, plan.sizes.shape.segments()), to_string(i) + ": " + tensor.name};
      }
    }
  });
  return found;
}

}  // namespace plait::runtime
