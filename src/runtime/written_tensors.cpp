#include "runtime/written_tensors.h"

#include <algorithm>

#include "core/error.h"

namespace plait::runtime {

std::vector<WrittenTensor> written_by(const parallel::RankPlan& plan, const RankBuffers& buffers,
                                      const parallel::Instruction& i) {
  std::vector<WrittenTensor> written;
  const auto spec_of = [](const std::vector<model::TensorSpec>& specs, const std::string& name) -> const model::TensorSpec& {
    const auto it = std::find_if(specs.begin(), specs.end(), [&](const model::TensorSpec& spec) { return spec.name == name; });
    require(it != specs.end(), "written_by: no tensor of the segment is called " + name);
    return *it;
  };
  if (i.kind == parallel::InstructionKind::forward) {
    const auto specs = model::activation_specs(plan.sizes, i.segment);
    for (const model::NamedView& v : model::named(buffers.forward_activations(i))) {
      const model::TensorSpec& spec = spec_of(specs, v.name);
      if (spec.role != model::TensorRole::workspace) written.push_back({v.name, v.view, spec.split});
    }
  } else if (i.kind == parallel::InstructionKind::backward_input) {
    const auto specs = model::gradient_specs(plan.sizes, i.segment);
    for (const model::NamedView& v : model::named(buffers.gradients_of(plan.train, i))) {
      const model::TensorSpec& spec = spec_of(specs, v.name);
      if (spec.role != model::TensorRole::workspace) written.push_back({parallel::gradient_name(v.name), v.view, spec.split});
    }
    written.push_back(
        {parallel::gradient_name("the segment's input"), buffers.input_gradient(plan.train, i), model::Split::residual});
  } else if (i.kind == parallel::InstructionKind::backward_weight) {
    for (std::size_t p = 0; p < plan.parameters.size(); ++p) {
      if (plan.parameters[p].segment != i.segment) continue;
      const parallel::Range range = plan.flat.parameter_gradient(p);
      written.push_back({parallel::gradient_name(plan.parameters[p].name), buffers.gradients.rows(range.first, range.count),
                         model::Split::none, static_cast<int>(p)});
    }
  }
  return written;
}

std::int64_t execution_order(const parallel::Instruction& i, int segments) {
  const bool forward = i.kind == parallel::InstructionKind::forward;
  const int within =
      forward ? i.segment
              : segments + 2 * (segments - 1 - i.segment) + (i.kind == parallel::InstructionKind::backward_weight ? 1 : 0);
  return std::int64_t{i.micro_batch} * 3 * segments + within;
}

}  // namespace plait::runtime
