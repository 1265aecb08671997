#include "verify/weak_bounds.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "core/error.h"

namespace plait::verify {

double weak_from(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::loss: return 0.1;
    case ErrorKind::norm: return 0.05;
    case ErrorKind::gradient: return 0.2;
    case ErrorKind::parameter:
    case ErrorKind::weight: return 0.5;
  }
  throw InternalError("weak_from: unknown kind");
}

std::vector<WeakBound> weak_bounds(const VerifyBounds& bounds, const std::vector<StepFigures>& steps) {
  std::vector<WeakBound> weak;
  const auto add = [&](ErrorKind kind, std::size_t index, double bound) {
    if (bound <= weak_from(kind)) return false;
    weak.push_back({kind, static_cast<std::int64_t>(index) + 1, bound, weak_from(kind)});
    return true;
  };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (add(ErrorKind::loss, i, bounds.loss(steps[i]))) break;
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (add(ErrorKind::norm, i, bounds.norm(steps[i]))) break;
  }
  // Gradients are compared in the first step that has any, and the last such step made the last update.
  const auto counts = [](const StepFigures& step) { return step.loss_tokens > 0; };
  const auto first = std::ranges::find_if(steps, counts);
  if (first != steps.end()) {
    add(ErrorKind::gradient, static_cast<std::size_t>(first - steps.begin()), bounds.gradient(first->drift));
    const auto last = std::find_if(steps.rbegin(), steps.rend(), counts);
    const double apart = 2 * bounds.gradient(last->drift), rounded = last->rounding;
    if (add(ErrorKind::parameter, static_cast<std::size_t>(steps.rend() - last) - 1, apart + rounded))
      weak.back().by_rounding = rounded > apart;
  }
  return weak;
}

std::string WeakBound::text() const {
  const std::string of = kind == ErrorKind::parameter ? " of what updates move parameters by" : "";
  return fmt::format("the bound of {} after step {} is {:.2g}{}, above {}: faults may hide beneath it", to_string(kind), step,
                     bound, of, most);
}

void to_json(nlohmann::ordered_json& json, const WeakBound& weak) {
  json = {{"kind", to_string(weak.kind)}, {"step", weak.step}, {"bound", weak.bound}, {"weak_from", weak.most}};
}

}  // namespace plait::verify
