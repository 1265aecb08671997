#include "study/report/report.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "core/file.h"
#include "study/report/findings.h"
#include "study/report/losses.h"
#include "study/report/sections.h"
#include "study/report/writers.h"
#include "study/study_data.h"

namespace plait::study {
namespace {

std::string about_line(const StudyData& data) {
  std::string text = fmt::format("{} scaling, {} points", to_string(data.config.study.scaling), data.points.size());
  if (!data.rounds.empty())
    text +=
        fmt::format(", {} rounds from {} to {}", data.rounds.size(), data.rounds.front().started, data.rounds.back().started);
  return text + fmt::format(", on {} ({}), plait {} at {}", data.environment.host, data.environment.machine(),
                            data.environment.plait.version, data.environment.plait.commit);
}

std::vector<std::string> notes_of(const Findings& f) {
  std::vector<std::string> notes = exceeded_study_bounds(f.data, f.rows, f.planner);
  const auto without = [&](const char* what, PointState state) {
    const auto count = std::ranges::count(f.rows, state, &Row::state);
    if (count > 0) notes.push_back(fmt::format("{} of {} points {}.", count, f.rows.size(), what));
  };
  without("ran out of memory", PointState::out_of_memory);
  without("failed", PointState::failed);
  without("timed out", PointState::timed_out);
  without("are not measured to their end: the study was interrupted", PointState::interrupted);
  without("are not measured to their end: the budget was used up", PointState::over_budget);
  const auto throttled = std::ranges::count_if(f.rows, [](const Row& row) { return !row.throttle_reasons.empty(); });
  if (throttled > 0) notes.push_back(fmt::format("{} points ran on devices that lowered their clocks.", throttled));
  const auto few =
      std::ranges::count_if(f.rows, [](const Row& row) { return row.rounds > 0 && row.rounds < least_rounds_for_interval; });
  if (few > 0 && f.data.config.study.scaling != Scaling::isoflop)
    notes.push_back(
        fmt::format("{} points have fewer than {} rounds: the intervals of their steps span what was measured, and hold "
                    "with less than 95 % (of 2, 3, 4, 5 rounds: 50, 75, 88, 94 %; one round has none).",
                    few, least_rounds_for_interval));
  if (f.data.environment.plait.commit.ends_with("-dirty"))
    notes.push_back("plait was built from sources that no commit has: nobody else can measure this again.");
  return notes;
}

}  // namespace

const Section* Report::find(const std::string& id) const {
  const auto found = std::ranges::find(sections, id, &Section::id);
  return found == sections.end() ? nullptr : &*found;
}

Report make_report(const StudyData& data) {
  const Findings findings(data);
  Report report{data.config.run.name, about_line(data), {}, notes_of(findings), {}};
  if (data.config.study.scaling == Scaling::isoflop) {
    const LossFindings losses(findings);
    report.sentences = sentences_of(losses);
    report.sections = {losses_section(losses), law_section(losses), memory_section(findings)};
  } else {
    report.sentences = sentences_of(findings);
    report.sections = {throughput_section(findings), efficiency_section(findings), ledger_section(findings),
                       map_section(findings),        prediction_section(findings), memory_section(findings),
                       pareto_section(findings)};
  }
  if (auto beyond = extrapolation_section(findings)) report.sections.push_back(std::move(*beyond));
  report.sections.push_back(points_section(findings));
  report.sections.push_back(environment_section(findings));
  if (auto links = links_section(findings)) report.sections.push_back(std::move(*links));
  return report;
}

std::vector<std::filesystem::path> write_report(const StudyData& data, const std::filesystem::path& folder) {
  const Report report = make_report(data);
  std::vector<std::filesystem::path> written;
  const auto write = [&](const char* name, const std::string& text) {
    write_text_file(folder / name, text);
    written.push_back(folder / name);
  };
  write("report.html", to_html(report));
  write("report.md", to_markdown(report));
  write("report.json", report_json(data, report).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  write("points.csv", points_csv(data));
  write("rounds.csv", rounds_csv(data));
  if (!data.simulated.empty()) write("simulated.csv", simulated_csv(data));
  return written;
}

}  // namespace plait::study
