#include "study/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "study/report/writers.h"
#include "synthetic_study.h"

namespace plait::study {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

StudyData everything() {
  StudyData data = test::study({.points = 6});
  test::add_every_state(data);
  test::add_simulated(data);
  return data;
}

std::vector<std::string> ids(const Report& report) {
  std::vector<std::string> found;
  for (const Section& section : report.sections) found.push_back(section.id);
  return found;
}

const Series& series(const Section& section, const std::string& name) {
  for (const Series& one : section.chart.value().series) {
    if (one.name == name) return one;
  }
  throw std::runtime_error("no series " + name);
}

// The largest number of fields is the heading's: a line must not have another.
std::vector<std::vector<std::string>> csv(const std::string& text) {
  std::vector<std::vector<std::string>> lines(1, {""});
  bool quoted = false;
  for (std::size_t n = 0; n < text.size(); ++n) {
    const char c = text[n];
    if (c == '"' && quoted && n + 1 < text.size() && text[n + 1] == '"') {
      lines.back().back() += '"', ++n;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      lines.back().emplace_back();
    } else if (c == '\r' && !quoted) {
      continue;
    } else if (c == '\n' && !quoted) {
      lines.push_back({""});
    } else {
      lines.back().back() += c;
    }
  }
  lines.pop_back();
  return lines;
}

TEST(Report, HasItsSectionsInOrder) {
  EXPECT_THAT(ids(make_report(everything())), ElementsAre("throughput", "efficiency", "ledger", "map", "prediction", "memory",
                                                          "pareto", "extrapolation", "points", "environment"));
  EXPECT_EQ(make_report(test::study()).find("extrapolation"), nullptr) << "nothing was simulated";
}

TEST(Report, NoPointVanishes) {
  const StudyData data = everything();
  const Report report = make_report(data);
  const Table& points = report.find("points")->table;
  ASSERT_EQ(points.rows.size(), data.points.size());
  std::set<std::string> states;
  for (std::size_t n = 0; n < points.rows.size(); ++n) {
    ASSERT_THAT(points.rows[n], SizeIs(points.columns.size()));
    EXPECT_EQ(points.rows[n][0].text, std::to_string(n));
    states.insert(points.rows[n][3].text);
    EXPECT_EQ(points.rows[n][3].text == "ok", points.rows[n][4].text.empty()) << "a reason unless it is ok";
  }
  for (const char* state : {"ok", "pruned: rule", "pruned: skip", "pruned: memory", "pruned: prediction", "pruned: duplicate",
                            "out of memory", "failed", "timed out", "interrupted"})
    EXPECT_TRUE(states.contains(state)) << state;
  EXPECT_THAT(points.rows[12][4].text, AllOf(HasSubstr("why"), HasSubstr("round 1, l")));
}

TEST(Report, SentencesFollowTheData) {
  StudyData data = test::study({.points = 6});
  // Ranks 1, 2, 4, 1, 2, 4; the fastest of four ranks is point 2.
  std::vector<std::string> s = make_report(data).sentences;
  ASSERT_THAT(s, SizeIs(3));
  EXPECT_THAT(s[0], AllOf(HasSubstr("4 ranks"), HasSubstr("zero=2"), HasSubstr("the other of that size is slower")));
  EXPECT_THAT(s[1], AllOf(HasSubstr("compute (70.0 %)"), HasSubstr("gradient buckets take most"), HasSubstr("12.0 %")));
  EXPECT_THAT(s[2], HasSubstr("Without gradient buckets the step would be"));
  // A point that does not fit and would be faster is what memory would change.
  Point& slow = data.points[5];
  slow.pruning = Pruning::memory, slow.pruned_because = "too large";
  slow.prediction->step_ms = 1, slow.prediction->peak_bytes = {4e9}, slow.prediction->limit_bytes = 2e9;
  std::erase_if(data.rounds, [](const Round& round) { return round.point == 5; });
  EXPECT_THAT(make_report(data).sentences[2], AllOf(HasSubstr("More memory would"), HasSubstr("zero=5"), HasSubstr("3.7 GiB")));
  // One that was not measured for another reason is named with it.
  slow.pruning.reset();
  data.rounds.push_back(test::failed(5, 1, Outcome::failed, "a wire broke"));
  EXPECT_THAT(make_report(data).sentences[2], AllOf(HasSubstr("was not measured"), HasSubstr("a wire broke")));
  // Where the bubble is the largest, it is what is named.
  for (Round& round : data.rounds) {
    if (!round.measured) continue;
    auto& ledger = round.measured->ledgers[0];
    std::swap(ledger.bubble_ms, ledger.of(parallel::CommunicationKind::gradient_buckets).exposed_ms);
  }
  EXPECT_THAT(make_report(data).sentences[1], HasSubstr("bubble takes most"));
  // And where little is lost, compute.
  for (Round& round : data.rounds) {
    if (round.measured) round.measured->ledgers[0].compute_ms = 0.97 * round.measured->ledgers[0].step_ms;
  }
  EXPECT_THAT(make_report(data).sentences[1], HasSubstr("Compute limits it: 97.0 %"));
}

TEST(Report, IntervalsThatMeetAreSaidToMeet) {
  StudyData data = test::study({.points = 6});
  for (Round& round : data.rounds) {
    if (round.point == 5) round.measured->step_ms = data.rounds[2].measured->step_ms;
  }
  EXPECT_THAT(make_report(data).sentences[0], HasSubstr("the other of that size cannot be told from it"));
}

TEST(Report, ChartsHoldWhatTablesSay) {
  const Report report = make_report(everything());
  const Section& throughput = *report.find("throughput");
  const Series& best = series(throughput, "fastest of its size");
  ASSERT_THAT(best.values, SizeIs(3));
  EXPECT_THAT(throughput.table.rows, SizeIs(3));
  EXPECT_NEAR(best.values[0].y, 12'800, 100) << "128 tokens in 10 ms";
  for (const ChartValue& value : best.values) {
    ASSERT_TRUE(value.interval);
    EXPECT_LE(value.interval->low, value.y);
    EXPECT_GE(value.interval->high, value.y);
  }
  EXPECT_NEAR(series(throughput, "ideal").values[2].y, 4 * best.values[0].y, 1e-6);
  // The accounts are the step.
  const Section& ledger = *report.find("ledger");
  double sum = 0;
  for (const Series& account : ledger.chart->series) sum += account.values.at(0).y;
  EXPECT_NEAR(sum, 10, 0.1) << "point 0 is the fastest per device";
  // A cell for what does not fit, and the fastest is marked once.
  int fastest = 0, does_not_fit = 0;
  for (const auto& row : report.find("map")->table.rows) {
    for (const Cell& cell : row) fastest += cell.mark == Mark::best, does_not_fit += cell.mark == Mark::does_not_fit;
  }
  EXPECT_EQ(fastest, 2) << "point 0, and the one that is its duplicate";
  EXPECT_EQ(does_not_fit, 2) << "one pruned, one out of memory";
  EXPECT_THAT(series(*report.find("prediction"), "+5 %").values, SizeIs(2));
  const Series& simulated = series(*report.find("extrapolation"), "simulated: h200, rail");
  EXPECT_EQ(simulated.look, Look::simulated);
  ASSERT_THAT(simulated.values, SizeIs(2));
  EXPECT_NEAR(simulated.values[0].interval->high / simulated.values[0].y, 1 / 0.96, 1e-9);
  EXPECT_NEAR(simulated.values[0].interval->low / simulated.values[0].y, 1 / 1.07, 1e-9);
  EXPECT_THAT(report.find("extrapolation")->table.rows, SizeIs(3)) << "what was refused too";
}

TEST(Report, ParetoKeepsWhatNothingBeats) {
  StudyData data = test::study({.points = 3, .noise = 0});
  // The slowest per device needs least; the one between needs most and is beaten.
  for (Round& round : data.rounds) round.measured->memory = {{0, round.point == 0 ? 5e8 : round.point == 1 ? 9e8 : 1e8, 0}};
  const Section section = *make_report(data).find("pareto");
  EXPECT_THAT(series(section, "beaten by none").values, SizeIs(2));
  ASSERT_THAT(series(section, "beaten by another").values, SizeIs(1));
  EXPECT_THAT(series(section, "beaten by another").values[0].label, HasSubstr("zero=1"));
}

TEST(Report, SpeedOfDifferentModelsIsInFlops) {
  StudyData data = test::study({.points = 3});
  EXPECT_THAT(make_report(data).find("throughput")->chart->y.title, HasSubstr("tokens/s"));
  data.points[1].facts->model_flops_per_token *= 2;
  EXPECT_THAT(make_report(data).find("throughput")->chart->y.title, HasSubstr("TFLOP/s"));
}

TEST(Report, StudiesWithLittleInThem) {
  // One point; no predictions; nothing measured at all.
  for (StudyData data :
       {test::study(), test::study({.points = 3, .predicted = false}), test::study({.points = 2, .rounds = 1})}) {
    const Report report = make_report(data);
    EXPECT_THAT(report.sentences, SizeIs(3));
    EXPECT_THAT(to_html(report), HasSubstr("</html>"));
    EXPECT_THAT(to_markdown(report), HasSubstr("## Every point"));
  }
  StudyData nothing = test::study({.points = 2});
  nothing.rounds.clear();
  for (Point& point : nothing.points) point.pruning = Pruning::memory, point.pruned_because = "3 GiB too much";
  nothing.baseline.reset();
  const Report report = make_report(nothing);
  EXPECT_THAT(report.sentences[0], HasSubstr("No point was measured: 2 pruned"));
  EXPECT_THAT(report.sentences[1], HasSubstr("3 GiB too much"));
  EXPECT_THAT(to_html(report), HasSubstr("3 GiB too much"));
  EXPECT_THAT(csv(points_csv(nothing)), SizeIs(3));
}

TEST(Report, OneRoundHasNoIntervals) {
  const StudyData data = test::study({.points = 2, .rounds = 1});
  const Report report = make_report(data);
  EXPECT_EQ(report.find("efficiency")->table.rows.at(1)[3].text, "—");
  EXPECT_EQ(report.find("throughput")->table.rows.at(1)[3].text, "—");
  for (const std::string& page : {to_html(report), to_markdown(report)}) {
    EXPECT_THAT(page, HasSubstr("one round has none"));
    EXPECT_THAT(page, Not(HasSubstr("nan to")));
  }
  const auto points = csv(points_csv(data));
  for (const char* name : {"step_ms", "tokens_per_second_per_device", "efficiency"}) {
    const auto at = static_cast<std::size_t>(std::ranges::find(points[0], name) - points[0].begin());
    ASSERT_LT(at + 2, points[0].size());
    EXPECT_EQ(points[0][at + 1], name + std::string("_low"));
    EXPECT_NE(points[2][at], "");
    EXPECT_EQ(points[2][at + 1], "");
    EXPECT_EQ(points[2][at + 2], "");
  }
}

TEST(Report, AChoiceOfThePlannerThatFailedIsSaid) {
  StudyData data = test::study({.points = 2, .rounds = 1});
  data.points[1].coordinates[1].second = "auto";
  data.rounds[1] = test::failed(1, 1, Outcome::failed, "a wire broke");
  EXPECT_THAT(make_report(data).find("prediction")->text,
              HasSubstr("There is no regret where the planner's choice for 2 ranks failed: ranks=2 layout=auto"));
  EXPECT_EQ(report_json(data, make_report(data)).at("planner").at("failed_choices").at(0).at("chosen"), 1);
}

TEST(Report, ThreeHundredPoints) {
  const Report report = make_report(test::study({.points = 300, .rounds = 2}));
  EXPECT_THAT(report.find("points")->table.rows, SizeIs(300));
  EXPECT_THAT(report.find("ledger")->table.rows, SizeIs(300));
  EXPECT_THAT(report.find("ledger")->chart->categories, SizeIs(40));
  EXPECT_THAT(report.find("ledger")->text, HasSubstr("The 40 fastest of 300 are drawn"));
  EXPECT_THAT(report.find("map")->table.rows, SizeIs(300));
}

TEST(Report, CsvIsTidy) {
  const StudyData data = everything();
  for (const std::string& text : {points_csv(data), rounds_csv(data), simulated_csv(data)}) {
    const auto lines = csv(text);
    for (const auto& line : lines) EXPECT_EQ(line.size(), lines[0].size());
  }
  const auto points = csv(points_csv(data));
  ASSERT_EQ(points.size(), 1 + data.points.size());
  const auto column = [&](const std::string& name) {
    const auto at = std::ranges::find(points[0], name) - points[0].begin();
    EXPECT_LT(at, static_cast<std::ptrdiff_t>(points[0].size())) << name;
    return static_cast<std::size_t>(at);
  };
  EXPECT_EQ(points[9][column("state")], "pruned");
  EXPECT_EQ(points[12][column("reason")], "it said <b>why</b>: out of memory");
  EXPECT_NEAR(std::stod(points[1][column("step_ms")]), 10, 0.2);
  EXPECT_LE(std::stod(points[1][column("step_ms_low")]), std::stod(points[1][column("step_ms")]));
  EXPECT_EQ(points[12][column("step_ms")], "");
  EXPECT_EQ(csv(rounds_csv(data)).size(), 1 + data.rounds.size());
  EXPECT_EQ(csv(simulated_csv(data)).size(), 1 + data.simulated.size());
  StudyData odd = test::study();
  odd.points[0].coordinates = {{"layout", "a,\"b\"\r\nc"}};
  EXPECT_EQ(csv(points_csv(odd))[1][3], "a,\"b\"\r\nc");
}

TEST(Report, MarkdownTakesNoTextForMarkup) {
  StudyData data = everything();
  data.config.run.name = "a|b <script>";
  const std::string text = to_markdown(make_report(data));
  EXPECT_THAT(text, HasSubstr("# a\\|b \\<script\\>"));
  EXPECT_THAT(text, HasSubstr("must be a multiple \\| of 3"));
  // Every line of a table has as many cells as its heading.
  std::istringstream lines(text);
  std::size_t columns = 0;
  for (std::string line; std::getline(lines, line);) {
    std::size_t bars = 0;
    for (std::size_t n = 0; n < line.size(); ++n) bars += line[n] == '|' && (n == 0 || line[n - 1] != '\\');
    if (!line.starts_with('|')) {
      columns = 0;
    } else if (columns == 0) {
      columns = bars;
    } else {
      EXPECT_EQ(bars, columns) << line;
    }
  }
}

TEST(Report, JsonHasTheRowsAndWhatIsShown) {
  const StudyData data = everything();
  const auto json = report_json(data, make_report(data));
  EXPECT_EQ(json.at("points").size(), data.points.size());
  EXPECT_EQ(json.at("report").at("sentences").size(), 3U);
  EXPECT_EQ(json.at("report").at("sections").size(), 10U);
}

// What would leave its place in the page, were it not escaped.
constexpr const char* hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\" ' & {{name}} \xE2\x80\xA8";

TEST(ReportPage, AsksForNothing) {
  const std::string page = to_html(make_report(everything()));
  // Everything that makes a browser load something. Chart.js names its home in a comment, and its licence that of Debian.
  const std::regex loads(
      R"re((src|href|action|data|poster|srcset)\s*=\s*["']?\s*(https?:)?//|url\(\s*["']?(https?:)?//|@import)re",
      std::regex::icase);
  std::smatch found;
  const std::string without_library = page.substr(0, page.find("<footer>"));
  EXPECT_FALSE(std::regex_search(without_library, found, loads)) << found.str();
  EXPECT_THAT(without_library, Not(HasSubstr("http://")));
  EXPECT_THAT(without_library, Not(HasSubstr("https://")));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, Not(HasSubstr("<script src")));
  EXPECT_THAT(page, Not(HasSubstr("<link rel=\"stylesheet\"")));
  EXPECT_THAT(page, HasSubstr("Permission is hereby granted")) << "the library's licence";
}

TEST(ReportPage, NoTextLeavesItsPlace) {
  StudyData data = everything();
  data.config.run.name = hostile;
  data.points[0].coordinates[1].second = hostile;
  const std::string page = to_html(make_report(data));
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("<img src=x")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)")) << "as text";
  EXPECT_THAT(page, HasSubstr("{{name}}")) << "not taken for a part of the template";
  const std::string begin = "<script id=\"charts\" type=\"application/json\">";
  const std::size_t at = page.find(begin) + begin.size();
  const auto json = nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at));
  EXPECT_EQ(json.size(), 7U) << "a chart for each section that has one";
  EXPECT_THAT(json.dump(), HasSubstr("onerror")) << "the value itself is whole";
}

TEST(ReportPage, EveryChartHasItsTable) {
  const Report report = make_report(everything());
  const std::string page = to_html(report);
  for (const Section& section : report.sections) {
    EXPECT_THAT(page, HasSubstr("<section id=\"" + section.id + "\">"));
    EXPECT_FALSE(section.table.rows.empty()) << section.id;
    EXPECT_EQ(section.chart.has_value(), page.find("id=\"chart-" + section.id + "\"") != std::string::npos);
  }
}

}  // namespace
}  // namespace plait::study
