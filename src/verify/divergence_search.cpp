#include "verify/divergence_search.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>

#include "verify/findings.h"
#include "verify/reference.h"

namespace plait::verify {

using parallel::Instruction;
using parallel::InstructionKind;
using runtime::WrittenTensor;

std::optional<Divergence> DivergenceSearch::synchronize_run() {
  // A rank that has found something goes on, because the others need it, but searches no further.
  for (std::int64_t step = 1; step <= std::ssize(bounds_.rates); ++step) take_step(step);
  return first_;
}

void DivergenceSearch::take_step(std::int64_t step) {
  step_ = step;
  sums_.clear();
  const ReferenceStep serial(serial_, step);
  const bool looking = !first_;
  runner_.synchronize_observe(step, [&](const Instruction& i, const std::vector<WrittenTensor>& written) {
    if (looking) observe(serial, i, written);
  });
  const runtime::StepResult result = runner_.synchronize_step();
  if (first_) return;

  Divergence found{.step = step, .part = StepPart::gradients};
  compare_parameters(gradient_errors(runner_.interpreter(), serial, bounds_), found, "reduced gradient of ");
  const auto scalar = [&](StepPart part, const std::string& what, double value, double expected, double bound) {
    found.part = part;
    found.what = found.tensor = what;
    found.error = relative_difference(value, expected);
    found.bound = bound;
    found.remark =
        fmt::format("{:.7g} instead of {:.7g}, though every tensor and every reduced gradient agrees", value, expected);
    if (result.loss_tokens != serial.loss_tokens())
      found.remark += fmt::format("; it is the mean over {} targets, not over {}", result.loss_tokens, serial.loss_tokens());
    note(found);
  };
  scalar(StepPart::loss, "loss", static_cast<double>(result.loss), serial.loss(), bounds_.loss(serial.figures()));
  scalar(StepPart::norm, "gradient norm", static_cast<double>(result.grad_norm), serial.norm(), bounds_.norm(serial.figures()));
  found.part = StepPart::parameters;
  compare_parameters(parameter_errors(runner_.interpreter(), serial, bounds_), found, "update of ");
  found.part = StepPart::weights;
  compare_parameters(weight_errors(runner_.interpreter(), serial, bounds_), found, "weights of ");
}

void DivergenceSearch::note(const Divergence& found) {
  if (found.error <= found.bound) return;
  Divergence placed = found;
  placed.rank = runner_.plan().rank;
  placed.at = runner_.plan().coordinates();
  if (!first_ || placed.before(*first_)) first_ = std::move(placed);
}

int DivergenceSearch::micro_batch_of_step(int micro_batch) const {
  const parallel::RankPlan& plan = runner_.plan();
  return micro_batch * plan.layout.size(batch_axes) + plan.layout.coordinate(plan.rank, batch_axes);
}

void DivergenceSearch::observe(const ReferenceStep& serial, const Instruction& i, const std::vector<WrittenTensor>& written) {
  runtime::Interpreter& interpreter = runner_.interpreter();
  const parallel::RankPlan& plan = runner_.plan();
  for (std::size_t t = 0; t < written.size(); ++t) {
    const WrittenTensor& tensor = written[t];
    Divergence found{.step = step_,
                     .order = runtime::execution_order(i, plan.sizes.shape.segments()),
                     .index = static_cast<std::int64_t>(t)};
    found.what = to_string(i) + ": " + tensor.name;
    if (tensor.segment != i.segment) found.what += fmt::format(" of segment {}", tensor.segment);
    found.tensor = tensor.name;
    found.segment = tensor.segment;
    found.micro_batch = i.micro_batch;
    found.remark = remark_on(i, t == 0);
    if (tensor.parameter >= 0) {
      observe_gradient(serial, i, tensor, std::move(found));
      continue;
    }
    if (!tensor.view) continue;  // the gradient of the embedding's input
    const std::string name = reference_tensor(micro_batch_of_step(i.micro_batch), tensor);
    const std::vector<double> values = interpreter.synchronize_read(tensor.view);
    std::vector<double> expected(values.size());
    const auto runs = serial_runs(plan, tensor, serial.shape(name));
    serial.read(name, runs, 0, expected);
    Difference difference;
    for (const model::ElementRun& run : runs) {
      for (std::int64_t e = run.first; e < run.first + run.count; ++e) {
        difference.add(values[static_cast<std::size_t>(e)], expected[static_cast<std::size_t>(e)]);
      }
    }
    found.error = difference.relative(serial.largest(name));
    found.bound = bounds_.tensor(serial.drift());
    note(found);
  }
}

// True if more than the weight part of its own segment adds to a parameter's gradient: the others may be micro-batches ahead,
// until the last one.
bool DivergenceSearch::others_add_to(const model::Parameter& parameter) const {
  const parallel::RankPlan& plan = runner_.plan();
  const bool is_table =
      parameter.segment == 0 && plan.sizes.shape.tie_embeddings && plan.holds(plan.sizes.shape.head_segment());
  return parameter.norm || is_table;
}

// Uses the planned order, not the observed one, so that a micro-batch that is left out shows.
std::vector<int> DivergenceSearch::weight_order(int chunk) const {
  const parallel::RankPlan& plan = runner_.plan();
  std::vector<int> order;
  for (const parallel::Pass& pass : plan.schedule.passes[static_cast<std::size_t>(plan.coordinates()[stage_axis])]) {
    if (pass.chunk == chunk && adds_to_weights(pass.kind)) order.push_back(pass.micro_batch);
  }
  return order;
}

void DivergenceSearch::observe_gradient(const ReferenceStep& serial, const Instruction& i, const WrittenTensor& written,
                                        Divergence found) {
  const parallel::RankPlan& plan = runner_.plan();
  const model::Parameter& parameter = plan.parameters[static_cast<std::size_t>(written.parameter)];
  // Only the sum over the ranks of a further group corresponds to a tensor of the serial run.
  if (!parameter.partial.without(replica_axes).empty()) return;
  GradientSum& sum = sums_[written.parameter];
  const auto elements = static_cast<std::size_t>(parameter.stored);
  if (sum.elements.empty() || plan.zero > 1) sum.elements.assign(elements, 0.0);
  const std::vector<int> order = weight_order(i.chunk);
  const auto here = static_cast<std::size_t>(std::ranges::find(order, i.micro_batch) - order.begin());
  if (plan.zero > 1) sum.next = here;  // each separately
  for (; sum.next <= here; ++sum.next) {
    // The serial run records the sum over its micro-batches so far; the difference of two is one micro-batch's part.
    const int at = micro_batch_of_step(order.at(sum.next));
    const std::string name = reference_tensor(at, written);
    const auto runs = serial_runs(plan, written, serial.shape(name));
    std::vector<double> now(elements), before(elements, 0.0);
    serial.read(name, runs, 0, now);
    if (at > 0) serial.read(reference_tensor(at - 1, written), runs, 0, before);
    for (std::size_t e = 0; e < elements; ++e) sum.elements[e] += now[e] - before[e];
    sum.largest = std::max(sum.largest, serial.largest(name));
  }
  if (others_add_to(parameter) && here + 1 < order.size()) return;

  const std::vector<double> values = runner_.interpreter().synchronize_read(written.view);
  Difference difference;
  for (std::size_t e = 0; e < elements; ++e) difference.add(values[e], sum.elements[e]);
  found.error = difference.relative(sum.largest);
  found.bound = bounds_.gradient(serial.drift());
  note(found);
}

void DivergenceSearch::compare_parameters(const std::vector<ParameterError>& errors, Divergence found,
                                          const std::string& what) {
  const parallel::RankPlan& plan = runner_.plan();
  for (std::size_t n = 0; n < errors.size(); ++n) {
    const model::Parameter& parameter = plan.parameters[errors[n].parameter];
    found.order = plan.sizes.shape.segments() - parameter.segment;
    found.index = static_cast<std::int64_t>(n);
    found.segment = parameter.segment;
    found.tensor = parameter.name;
    found.what = fmt::format("{}{} (segment {})", what, parameter.name, parameter.segment);
    found.error = errors[n].error;
    found.bound = errors[n].bound;
    found.remark = remark_on(found.part, parameter);
    note(found);
  }
}

std::string DivergenceSearch::remark_on(StepPart part, const model::Parameter& parameter) const {
  if (part == StepPart::parameters) return "every reduced gradient agrees, and so does their norm";
  if (part == StepPart::weights) {
    return runner_.plan().zero > 0 ? "every parameter agrees on the rank that updates it: an all_gather brings it to the others"
                                   : "every parameter agrees";
  }
  std::string groups = to_string(parallel::groups::replicas);
  parameter.partial.without(replica_axes).for_each([&](Axis axis) {
    groups += " and the " + to_string(parallel::group_along(axis));
  });
  return "what forward and backward wrote agrees; the gradient is the sum of that over the " + groups + " group";
}

std::string DivergenceSearch::remark_on(const Instruction& i, bool first_tensor) const {
  const parallel::RankPlan& plan = runner_.plan();
  const parallel::Chunk& chunk = plan.train.chunk_of(i);
  const bool norms = i.kind == InstructionKind::norm && !i.recomputed;
  std::vector<std::string> remarks;
  if (first_tensor && norms && i.segment == chunk.first_segment && chunk.previous_rank >= 0) {
    remarks.push_back(fmt::format("the segment's input comes from pipeline rank {}", chunk.previous_rank));
  }
  if (first_tensor && i.kind == InstructionKind::backward_input && i.segment == chunk.last_segment() && chunk.next_rank >= 0) {
    remarks.push_back(fmt::format("it comes from pipeline rank {}", chunk.next_rank));
  }
  if (step_ > 1) remarks.push_back(fmt::format("all weights agreed after step {}", step_ - 1));
  return fmt::format("{}", fmt::join(remarks, "; "));
}

}  // namespace plait::verify
