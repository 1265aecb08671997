#include "study/compare/comparison_output.h"

#include <spdlog/fmt/fmt.h>

#include "core/terminal.h"
#include "core/text_table.h"
#include "study/report/findings.h"
#include "verify/junit.h"

namespace plait::study {
namespace {

using ComparisonJson = nlohmann::ordered_json;

std::string growth_text(const ComparedPoint& point) {
  if (!point.growth) return "";
  return fmt::format("{} grew most: {:+.3g} ms, {} to {}", point.growth->account, point.growth->ms(),
                     figure(point.growth->old_ms), figure(point.growth->new_ms));
}

std::string verdict_text(const ComparedPoint& point) {
  if (point.change == Change::broken) return point.because;
  std::string text =
      fmt::format("{:+.1f} % ({}{:+.1f} to {:+.1f}), {} to {} ms, p {:.2g}", 100 * (point.factor.value - 1),
                  point.has_interval() ? "" : "ranges from ", 100 * (point.factor.interval.low - 1),
                  100 * (point.factor.interval.high - 1), figure(point.old_step_ms), figure(point.new_step_ms), point.p);
  const bool grew = point.change == Change::slower && point.growth;
  if (grew) text += "; " + growth_text(point);
  return text;
}

std::string headline(const Comparison& c) {
  std::string text;
  for (const Name<Change>& change : names<Change>) {
    const std::size_t count = c.count(change.value);
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, change.text);
  }
  if (!c.lone.empty()) text += fmt::format("{}{} not compared", text.empty() ? "" : ", ", c.lone.size());
  return text;
}

}  // namespace

std::string comparison_text(const Comparison& c, int width) {
  std::string text =
      folded(fmt::format("{} ({}) beside {} ({})", c.new_folder, c.new_commit, c.old_folder, c.old_commit), width, 4) + "\n";
  if (!c.other_machine.empty()) text += "DIFFERENT MACHINES: " + c.other_machine + "\n";
  TextTable table({{"change", Align::left}, {"point", Align::left}, {"by", Align::left}});
  for (const ComparedPoint& point : c.points) {
    const bool open = point.change == Change::cannot_tell;
    table.add({to_string(point.change), point.label, verdict_text(point) + (open ? "; " + point.because : "")});
  }
  for (const LonePoint& point : c.lone) table.add({"—", point.label, point.because});
  text += table.text(width);
  const std::string bound = c.threshold > 0 ? fmt::format("{} at least", percent(c.threshold))
                                            : "any significant difference (study.bounds.regression is none)";
  return text + folded(fmt::format("{}. Slower and faster: {}.", headline(c), bound), width) + "\n";
}

ComparisonJson to_json(const Comparison& c) {
  ComparisonJson json{{"old", {{"folder", c.old_folder}, {"commit", c.old_commit}}},
                      {"new", {{"folder", c.new_folder}, {"commit", c.new_commit}}},
                      {"threshold", c.threshold}};
  json["other_machine"] = c.other_machine.empty() ? ComparisonJson() : ComparisonJson(c.other_machine);
  json["points"] = ComparisonJson::array();
  for (const ComparedPoint& point : c.points) {
    ComparisonJson one{{"label", point.label},
                       {"old_point", point.old_point},
                       {"new_point", point.new_point},
                       {"change", to_string(point.change)},
                       {"old_step_ms", point.old_step_ms}};
    const bool is_broken = point.change == Change::broken;
    one["new_step_ms"] = is_broken ? ComparisonJson() : ComparisonJson(point.new_step_ms);
    one["factor"] = is_broken ? ComparisonJson() : ComparisonJson(point.factor.value);
    one["interval"] = ComparisonJson();
    if (!is_broken && point.has_interval()) one["interval"] = {point.factor.interval.low, point.factor.interval.high};
    one["p"] = is_broken ? ComparisonJson() : ComparisonJson(point.p);
    one["rounds"] = {point.old_rounds, point.new_rounds};
    one["growth"] = ComparisonJson();
    if (point.growth)
      one["growth"] = {{"account", point.growth->account}, {"old_ms", point.growth->old_ms}, {"new_ms", point.growth->new_ms}};
    one["because"] = point.because;
    json["points"].push_back(std::move(one));
  }
  json["lone"] = ComparisonJson::array();
  for (const LonePoint& point : c.lone)
    json["lone"].push_back({{"point", point.point}, {"label", point.label}, {"because", point.because}});
  json["counts"] = ComparisonJson::object();
  for (const Name<Change>& change : names<Change>) json["counts"][std::string(change.text)] = c.count(change.value);
  json["regression"] = c.is_regression();
  return json;
}

std::string to_junit(const Comparison& c) {
  verify::JunitSuite suite{"plait.study.compare", {}};
  for (const ComparedPoint& point : c.points) {
    verify::JunitCase one{suite.name, point.label, point.new_step_ms / 1e3, verify::JunitOutcome::passed, "", ""};
    switch (point.change) {
      case Change::same:
      case Change::faster: break;
      case Change::slower: one.outcome = verify::JunitOutcome::failure, one.details = growth_text(point); break;
      case Change::broken: one.outcome = verify::JunitOutcome::error; break;
      case Change::cannot_tell: one.outcome = verify::JunitOutcome::skipped, one.details = point.because; break;
    }
    if (one.outcome != verify::JunitOutcome::passed) one.message = to_string(point.change) + ": " + verdict_text(point);
    suite.cases.push_back(std::move(one));
  }
  for (const LonePoint& point : c.lone)
    suite.cases.push_back({suite.name, point.label, 0, verify::JunitOutcome::skipped, point.because, ""});
  return verify::junit_xml("plait study compare", {suite});
}

}  // namespace plait::study
