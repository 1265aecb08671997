#include "verify/report_json.h"

#include "parallel/ledger_json.h"

namespace plait::verify {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json layout_json(const LayoutResult& result) {
  const ParallelConfig& p = result.parallel;
  const VerifyFindings& f = result.findings;
  const auto error = [&](ErrorKind kind) { return f.measured() ? Json(f.of(kind).largest) : Json(); };
  Json shares;  // null if nothing was compared
  for (const ErrorKind kind : error_kinds) {
    if (f.measured()) shares[to_string(kind)] = f.of(kind).of_bound;
  }
  Json sizes;
  for (const Name<Axis>& axis : names<Axis>) sizes[axis.text] = p.size[axis.value];
  return {{"model", result.model},
          {"layout", sizes},
          {"name", result.layout},
          {"schedule", schedule_name(p)},
          {"virtual_stages", p.virtual_stages},
          {"zero", p.zero},
          {"sequence_parallel", p.sequence_parallel && p.size[segment_axis] > 1},
          {"recompute", to_string(p.recompute.value())},
          {"device", result.device},
          {"max_loss_error", error(ErrorKind::loss)},
          {"max_norm_error", error(ErrorKind::norm)},
          {"max_grad_error", error(ErrorKind::gradient)},
          {"max_param_error", error(ErrorKind::parameter)},
          {"max_weight_error", error(ErrorKind::weight)},
          {"of_bound", shares},
          {"first_divergence", f.first_divergence ? Json(*f.first_divergence) : Json()},
          {"failure", text_or_null(result.failure)},
          {"ledgers", f.ledgers},
          {"exceeded_bounds", result.exceeded},
          {"passed", result.passed()},
          {"seconds", result.seconds}};
}

}  // namespace

Json to_json(const VerifyReport& report) {
  Json reference = {{"device", report.device}, {"models", Json::array()}};
  Json bounds = Json::object();
  for (const ModelReport& model : report.models) {
    Json losses = Json::array(), norms = Json::array(), steps = Json::array();
    for (const StepFigures& step : model.steps) {
      losses.push_back(step.loss);
      norms.push_back(step.norm);
      steps.push_back({{"loss", model.bounds.loss(step)},
                       {"norm", model.bounds.norm(step)},
                       {"gradient", model.bounds.gradient(step.drift)},
                       {"tensor", model.bounds.tensor(step.drift)},
                       {"drift", step.drift},
                       {"logits", step.logits},
                       {"rounding", step.rounding}});
    }
    reference["models"].push_back({{"model", model.name},
                                   {"parameters", model.parameters},
                                   {"compute", model.compute},
                                   {"losses", losses},
                                   {"norms", norms},
                                   {"failure", text_or_null(model.failure)}});
    bounds[model.name] = to_json(model.bounds);
    bounds[model.name]["steps"] = steps;
    bounds[model.name]["weak"] = model.weak;
  }
  Json layouts = Json::array(), refused = Json::array();
  for (const LayoutResult& result : report.layouts) layouts.push_back(layout_json(result));
  for (const RefusedLayout& r : report.refused)
    refused.push_back({{"model", r.model}, {"name", r.layout}, {"reason", r.reason}});
  return {{"reference", reference},    {"layouts", layouts},        {"refused", refused},    {"bounds", bounds},
          {"passed", report.passed()}, {"failed", report.failed()}, {"weak", report.weak()}, {"seconds", report.seconds}};
}

}  // namespace plait::verify
