#include "verify/report.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "core/format.h"
#include "core/terminal.h"
#include "parallel/ledger_json.h"
#include "train/report/ledger_text.h"
#include "verify/junit.h"

namespace plait::verify {
namespace {

using Json = nlohmann::ordered_json;

constexpr int wide = 240;  // wider than any terminal
constexpr const char* green = "32";
constexpr const char* yellow = "33";
constexpr const char* red = "1;31";
constexpr std::array columns = {ErrorKind::loss, ErrorKind::norm, ErrorKind::gradient, ErrorKind::parameter};

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
  for (const Name<Axis>& axis : names<Axis>) sizes[axis.text] = p.size[axis.value].value_or(0);
  return {{"model", result.model},
          {"layout", sizes},
          {"name", result.layout},
          {"schedule", schedule_name(p)},
          {"virtual_stages", p.virtual_stages.value()},
          {"zero", p.zero.value()},
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

std::string details_of(const VerifyFindings& findings) {
  std::string text;
  for (const ErrorKind kind : error_kinds) {
    const ErrorSummary& s = findings.of(kind);
    text += fmt::format("{}: largest relative error {:.3g}; {:.3g} of its bound at {}\n", to_string(kind), s.largest,
                        s.of_bound, s.where);
  }
  return text;
}

std::string message_of(const LayoutResult& result) {
  const VerifyFindings& f = result.findings;
  std::string message = f.first_divergence ? f.first_divergence->text() : result.failure;
  for (const train::ExceededBound& bound : result.exceeded) message += (message.empty() ? "" : "; ") + bound.text();
  return message;
}

JunitCase case_of(const LayoutResult& result, const std::string& suite) {
  JunitCase test{suite, result.layout, result.seconds, JunitOutcome::passed, "", ""};
  const VerifyFindings& f = result.findings;
  if (!f.measured()) {
    test.outcome = JunitOutcome::error, test.message = result.failure;
  } else if (!result.passed()) {
    test.outcome = JunitOutcome::failure, test.message = message_of(result);
    test.details = details_of(f) + train::ledger_table(f.ledgers).text(wide);
  }
  return test;
}

// The layout column. Schedule and ZeRO have their own.
std::string layout_column(ParallelConfig p) {
  const ParallelConfig usual;
  p.schedule = usual.schedule;
  p.schedule_file = nullptr;
  p.virtual_stages = usual.virtual_stages;
  p.zero = usual.zero;
  return layout_text(p, {});
}

std::string schedule_column(const ParallelConfig& p) {
  if (p.size[stage_axis] == 1) return "-";
  const std::string name = schedule_name(p);
  return p.virtual_stages > 1 ? fmt::format("{} {}", name, p.virtual_stages.value()) : name;
}

std::string error_column(double error) { return error >= not_finite ? "inf" : fmt::format("{:.1e}", error); }

std::string share_column(double share) {
  if (share > 99) return "> 99 x";
  return share > 1 ? fmt::format("{:.1f} x", share) : fmt::format("{:.0f} %", 100 * share);
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

std::string to_junit(const VerifyReport& report) {
  std::vector<JunitSuite> suites;
  for (const ModelReport& model : report.models) {
    JunitSuite& suite = suites.emplace_back(JunitSuite{"plait.verify." + model.name, {}});
    for (const LayoutResult& result : report.layouts) {
      if (result.model == model.name) suite.cases.push_back(case_of(result, suite.name));
    }
    for (const RefusedLayout& refused : report.refused) {
      if (refused.model == model.name)
        suite.cases.push_back({suite.name, refused.layout, 0, JunitOutcome::skipped, refused.reason, ""});
    }
  }
  return junit_xml("plait verify", suites);
}

VerifyTable::VerifyTable(const TerminalOptions& options)
    : line_(std::make_shared<StatusLine>(options)),
      table_({{"model", Align::left},
              {"layout", Align::left},
              {"schedule", Align::left},
              {"zero"},
              {"", Align::left},
              {"loss"},
              {"norm", Align::right, true},
              {"gradient", Align::right, true},
              {"parameter", Align::right, true},
              {"of bound", Align::right, true},
              {"time", Align::right, true}}) {}

VerifyEvents VerifyTable::events() {
  return {.planned = [this](const VerifyMatrix& matrix) { plan(matrix); },
          .recorded = [this](const ModelReport& model) { take(model); },
          .started = [this](const std::string& model, const std::string& layout) { begin(model, layout); },
          .finished = [this](const LayoutResult& result) { finish(result); }};
}

std::string VerifyTable::colored(const std::string& text, const char* color) const {
  return line_->options().color ? fmt::format("\x1b[{}m{}\x1b[0m", color, text) : text;
}

void VerifyTable::plan(const VerifyMatrix& matrix) {
  cases_ = matrix.cases.size();
  progress_.emplace("verifying", line_->options().updating ? line_ : nullptr);
  table_.measure(
      {"largest", "share of its bound", "", "", "", "1.0e-00", "1.0e-00", "1.0e-00", "1.0e-00", "> 99 x", "100.00 s"});
  for (const VerifyCase& c : matrix.cases) {
    table_.measure({matrix.models[c.model].name, layout_column(c.config.parallel), schedule_column(c.config.parallel),
                    std::to_string(c.config.parallel.zero), "FAILED"});
  }
  const Config& serial = matrix.models.front().serial;
  print_folded(fmt::format("{} of {} against the serial run: {} of {} of {}", plural(cases_, "layout"),
                           plural(matrix.models.size(), "model"), plural(serial.verify.steps, "step"),
                           plural(serial.train.global_batch, "sequence"), plural(serial.data.sequence_length, "token")));
  line_->print("\n" + table_.heading(line_->width()));
}

std::string VerifyTable::row(const std::vector<std::string>& cells) const { return table_.row(cells, line_->width()); }

void VerifyTable::print_folded(const std::string& text) { line_->print(folded(text, line_->width(), 4)); }

void VerifyTable::begin(const std::string& model, const std::string& layout) {
  if (progress_) progress_->advance(static_cast<double>(finished_) / static_cast<double>(cases_), model + "  " + layout);
}

void VerifyTable::finish(const LayoutResult& result) {
  ++finished_;
  const VerifyFindings& f = result.findings;
  std::vector<std::string> cells = {result.model, layout_column(result.parallel), schedule_column(result.parallel),
                                    std::to_string(result.parallel.zero),
                                    !result.passed() ? colored("FAILED", red)
                                    : weak_          ? colored("weak", yellow)
                                                     : colored("ok", green)};
  for (const ErrorKind kind : columns) cells.push_back(f.measured() ? error_column(f.of(kind).largest) : "-");
  cells.push_back(f.measured() ? share_column(f.of_bound()) : "-");
  cells.push_back(fmt::format("{:.2f} s", result.seconds));
  line_->print(row(cells));
  if (f.first_divergence) line_->print(indented("first divergence: " + f.first_divergence->text()));
  // A serial run's failure is the failure of all layouts.
  if (!result.failure.empty() && result.failure != said_) line_->print(indented(result.failure));
  said_ = result.failure;
  for (const train::ExceededBound& bound : result.exceeded) line_->print(indented(bound.text()));
  if (!result.exceeded.empty()) line_->print(indented(train::ledger_table(f.ledgers).text(line_->width() - 4)));
}

void VerifyTable::summarize(const VerifyReport& report) {
  progress_.reset();
  VerifyFindings all;
  for (const LayoutResult& result : report.layouts) all.merge(result.findings);
  std::vector<std::string> errors = {"largest", "error", "", "", ""}, shares = {"", "share of its bound", "", "", ""};
  for (const ErrorKind kind : columns) {
    errors.push_back(error_column(all.of(kind).largest));
    shares.push_back(share_column(all.of(kind).of_bound));
  }
  shares.push_back(share_column(all.of_bound()));
  if (all.measured()) {
    line_->print("\n" + row(errors));
    line_->print(row(shares));
  }
  for (const ModelReport& model : report.models) {
    for (const WeakBound& weak : model.weak)
      print_folded(colored(fmt::format("weak: {}: {}", model.name, weak.text()), yellow));
  }
  if (report.weak()) {
    const auto by_rounding = [](const ModelReport& model) { return std::ranges::any_of(model.weak, &WeakBound::by_rounding); };
    print_folded(std::ranges::any_of(report.models, by_rounding)
                     ? "a larger verify.lr or a smaller verify.epsilon makes updates larger than the rounding of parameters"
                     : "a smaller verify.lr, fewer verify.steps or a wider precision.compute makes bounds stronger");
    // Bounds grow in proportion to steps, and errors faster once these are large.
    if (!all.passed() && all.of(ErrorKind::gradient).of_bound <= 1)
      print_folded(
          "FAILED may be no fault here: the first gradients agree, and after steps so large errors grow faster than bounds");
  }
  const auto failed = static_cast<std::size_t>(report.failed()), count = report.layouts.size();
  std::string text = failed > 0   ? colored(fmt::format("{} of {} FAILED", failed, plural(count, "layout")), red)
                     : count == 1 ? colored("the layout agrees", green)
                                  : colored(fmt::format("all {} layouts agree", count), green);
  if (!report.refused.empty()) text += fmt::format(", {} refused (--json says why)", report.refused.size());
  print_folded(fmt::format("\n{}; {} on {}", text,
                           format_duration(std::chrono::seconds(static_cast<std::int64_t>(report.seconds + 0.5))),
                           report.device));
}

}  // namespace plait::verify
