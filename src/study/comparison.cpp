#include "study/comparison.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <map>

#include "config/schedule_file.h"
#include "core/error.h"
#include "core/parse_number.h"
#include "core/terminal.h"
#include "core/text_table.h"
#include "study/report/findings.h"
#include "study/study_data.h"
#include "verify/junit.h"

namespace plait::study {
namespace {

constexpr double significant = 0.05;

// The contents of a point's schedule file: the study's copy, else the file that its path leads to now. "" without a file.
std::string schedule_of(const StudyData& data, const Point& point) {
  if (!point.facts || named<ScheduleKind>(point.facts->schedule)) return "";
  std::string problem;
  auto file = read_schedule_file((data.folder / "points" / std::to_string(point.index) / "schedule.csv").string(), problem);
  if (file == nullptr) file = read_schedule_file(point.facts->schedule, problem);
  return file != nullptr ? file->text : "";
}

// Its resolved configuration as written down, plus its schedule.
std::string written(const StudyData& data, const Point& point) { return point.config + schedule_of(data, point); }

// A point's measured configuration as text, without the names of its run.
std::string configuration_of(const StudyData& data, const Point& point) {
  try {
    Config config = parse_config(point.config, {}, fmt::format("point {}", point.index));
    const std::uint64_t seed = config.run.seed;
    config.run = {}, config.verify = {}, config.study = {}, config.bounds = {};
    config.run.seed = seed;
    return to_yaml(config) + schedule_of(data, point);
  } catch (const ConfigError&) {
    // Written by a plait with other keys, or with a missing schedule file: equal only to the very same text.
    return written(data, point);
  }
}

bool can_be_compared(const Point& point) { return !point.config.empty() && !point.same_as; }

// For each point of `after`, in its order, the one of `before` with the same configuration; null if there is none.
std::vector<const Point*> partners(const StudyData& before, const StudyData& after) {
  std::map<std::string, const Point*> by_text, by_configuration;
  for (const Point& point : before.points) {
    if (can_be_compared(point)) by_text.try_emplace(written(before, point), &point);
  }
  const auto find = [](const auto& points, const std::string& text) {
    const auto found = points.find(text);
    return found == points.end() ? nullptr : found->second;
  };
  std::vector<const Point*> found;
  for (const Point& point : after.points) {
    found.push_back(can_be_compared(point) ? find(by_text, written(after, point)) : nullptr);
    if (found.back() != nullptr || !can_be_compared(point)) continue;
    // Read only if the texts differ: studies of one configuration file agree to the byte.
    if (by_configuration.empty()) {
      for (const auto& [text, old_point] : by_text)
        by_configuration.try_emplace(configuration_of(before, *old_point), old_point);
    }
    found.back() = find(by_configuration, configuration_of(after, point));
  }
  return found;
}

std::vector<Account> median_accounts(const std::vector<const Round*>& rounds) {
  std::vector<Account> accounts = accounts_of({});
  for (std::size_t n = 0; n < accounts.size(); ++n) {
    std::vector<double> values;
    for (const Round* round : rounds) {
      parallel::LedgerSum ranks;
      for (const parallel::Ledger& ledger : round->measured->ledgers) ranks.add(ledger);
      if (ranks.steps() > 0) values.push_back(accounts_of(ranks.mean())[n].ms);
    }
    if (!values.empty()) accounts[n].ms = median(std::move(values));
  }
  return accounts;
}

std::optional<Growth> largest_growth(const std::vector<const Round*>& before, const std::vector<const Round*>& after) {
  const std::vector<Account> was = median_accounts(before), is = median_accounts(after);
  std::optional<Growth> largest;
  for (std::size_t n = 0; n < was.size(); ++n) {
    const Growth growth{was[n].name, was[n].ms, is[n].ms};
    if (growth.ms() > (largest ? largest->ms() : 0)) largest = growth;
  }
  return largest;
}

// The reason why a point has no times; "" if it has some.
std::string why_without_times(const StudyData& data, const Point& point) {
  if (point.pruning) return "pruned: " + point.pruned_because;
  if (const Round* failure = data.failure_of(point.index)) return to_string(failure->outcome) + ": " + failure->message;
  return data.measured_rounds_of(point.index).empty() ? to_string(data.state_of(point.index)) : "";
}

void judge(ComparedPoint& point, double threshold, std::size_t points) {
  const double longer = point.factor.value - 1;
  const bool differs = point.p <= significant;
  if (differs && longer > 0 && longer >= threshold) {
    point.change = Change::slower;
  } else if (differs && longer < 0 && -longer >= threshold) {
    point.change = Change::faster;
  } else if (point.has_interval() && point.factor.interval.low >= 1 - threshold &&
             point.factor.interval.high <= 1 + threshold) {
    point.change = Change::same;
  } else {
    point.change = Change::cannot_tell;
    const double least = least_rank_sum_p(point.old_rounds, point.new_rounds) * static_cast<double>(points);
    point.because = fmt::format("p {:.3g}, {} {:.3f} to {:.3f}", point.p,
                                point.has_interval() ? "95 % interval of the factor" : "the factor ranges from",
                                point.factor.interval.low, point.factor.interval.high);
    if (least > significant)
      point.because +=
          fmt::format("; {} and {} rounds are too few to show any difference among {} points: more study.measure.rounds",
                      point.old_rounds, point.new_rounds, points);
  }
}

using Json = nlohmann::ordered_json;

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

bool ComparedPoint::has_interval() const { return least_rank_sum_p(old_rounds, new_rounds) <= significant; }

std::size_t Comparison::count(Change change) const {
  return static_cast<std::size_t>(std::ranges::count(points, change, &ComparedPoint::change));
}

Comparison compare(const StudyData& before, const StudyData& after, const ComparisonOptions& options) {
  Comparison c{.old_folder = before.folder.string(),
               .new_folder = after.folder.string(),
               .old_commit = before.environment.plait.commit,
               .new_commit = after.environment.plait.commit};
  const std::string old_machine = before.environment.machine(), new_machine = after.environment.machine();
  if (old_machine != new_machine) {
    c.other_machine = fmt::format("{} on {}; {} on {}", c.old_folder, old_machine, c.new_folder, new_machine);
    if (!options.allow_other_machine)
      throw ConfigError(
          "measured on different machines: " + c.other_machine +
          ". Times of different machines say nothing about plait; --allow-other-machine compares them all the same.");
  }
  const auto bound = percentage(after.config.study.bounds.regression);
  c.threshold = bound ? *bound : percentage(before.config.study.bounds.regression).value_or(0);

  const std::vector<const Point*> partner = partners(before, after);
  for (const Point& point : before.points) {
    if (can_be_compared(point) && std::ranges::find(partner, &point) == partner.end())
      c.lone.push_back({point.index, point.label(), "only in " + c.old_folder});
  }
  bool any_in_both = false;
  for (std::size_t n = 0; n < after.points.size(); ++n) {
    const Point* point = &after.points[n];
    if (!can_be_compared(*point)) continue;
    if (partner[n] == nullptr) {
      c.lone.push_back({point->index, point->label(), "only in " + c.new_folder});
      continue;
    }
    any_in_both = true;
    const Point& old_point = *partner[n];
    const std::string no_old = why_without_times(before, old_point), no_new = why_without_times(after, *point);
    const bool breaks = no_old.empty() && (after.failure_of(point->index) != nullptr || point->pruning == Pruning::memory);
    if (!breaks && !(no_old.empty() && no_new.empty())) {
      const std::string where = no_old.empty() ? c.new_folder : c.old_folder;
      c.lone.push_back(
          {point->index, point->label(), fmt::format("not measured in {}: {}", where, no_old.empty() ? no_new : no_old)});
      continue;
    }
    const std::vector<const Round*> old_rounds = before.measured_rounds_of(old_point.index),
                                    new_rounds = after.measured_rounds_of(point->index);
    ComparedPoint compared{.old_point = old_point.index,
                           .new_point = point->index,
                           .label = point->label(),
                           .change = breaks ? Change::broken : Change::cannot_tell,
                           .old_rounds = old_rounds.size(),
                           .new_rounds = new_rounds.size(),
                           .old_step_ms = median(round_medians(old_rounds)),
                           .because = breaks ? no_new : ""};
    if (!breaks) {
      compared.new_step_ms = median(round_medians(new_rounds));
      compared.factor = factor_between(round_medians(old_rounds), round_medians(new_rounds));
      compared.p = rank_sum_p(round_medians(old_rounds), round_medians(new_rounds));
      compared.growth = largest_growth(old_rounds, new_rounds);
    }
    c.points.push_back(std::move(compared));
  }
  if (!any_in_both)
    throw ConfigError(
        fmt::format("{} and {} have no point in common: no resolved configuration is in both", c.old_folder, c.new_folder));
  if (c.points.empty()) {
    throw ConfigError(fmt::format("no point was measured in both {} and {}: {}: {}", c.old_folder, c.new_folder,
                                  c.lone.front().label, c.lone.front().because));
  }
  std::ranges::sort(c.points, {}, &ComparedPoint::new_point);
  std::vector<ComparedPoint*> tested;
  std::vector<double> p;
  for (ComparedPoint& point : c.points) {
    if (point.change == Change::broken) continue;
    tested.push_back(&point);
    p.push_back(point.p);
  }
  const std::vector<double> corrected = holm_corrected(p);
  for (std::size_t n = 0; n < tested.size(); ++n) {
    tested[n]->p = corrected[n];
    judge(*tested[n], c.threshold, tested.size());
  }
  return c;
}

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

Json to_json(const Comparison& c) {
  Json json{{"old", {{"folder", c.old_folder}, {"commit", c.old_commit}}},
            {"new", {{"folder", c.new_folder}, {"commit", c.new_commit}}},
            {"threshold", c.threshold}};
  json["other_machine"] = c.other_machine.empty() ? Json() : Json(c.other_machine);
  json["points"] = Json::array();
  for (const ComparedPoint& point : c.points) {
    Json one{{"label", point.label},
             {"old_point", point.old_point},
             {"new_point", point.new_point},
             {"change", to_string(point.change)},
             {"old_step_ms", point.old_step_ms}};
    const bool is_broken = point.change == Change::broken;
    one["new_step_ms"] = is_broken ? Json() : Json(point.new_step_ms);
    one["factor"] = is_broken ? Json() : Json(point.factor.value);
    one["interval"] = Json();
    if (!is_broken && point.has_interval()) one["interval"] = {point.factor.interval.low, point.factor.interval.high};
    one["p"] = is_broken ? Json() : Json(point.p);
    one["rounds"] = {point.old_rounds, point.new_rounds};
    one["growth"] = Json();
    if (point.growth)
      one["growth"] = {{"account", point.growth->account}, {"old_ms", point.growth->old_ms}, {"new_ms", point.growth->new_ms}};
    one["because"] = point.because;
    json["points"].push_back(std::move(one));
  }
  json["lone"] = Json::array();
  for (const LonePoint& point : c.lone)
    json["lone"].push_back({{"point", point.point}, {"label", point.label}, {"because", point.because}});
  json["counts"] = Json::object();
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
