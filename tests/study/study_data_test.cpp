#include "study/study_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "core/error_of.h"
#include "core/temporary_directory.h"
#include "study/records.h"
#include "study/report/report.h"
#include "study_files.h"
#include "topology/topology_json.h"

namespace plait::study {
namespace {

using test::failed;
using test::round;
using testing::HasSubstr;
namespace fs = std::filesystem;

class StudyDataTest : public testing::Test {
 protected:
  StudyDataTest() {
    const Config config = test::study_config(folder_.path());
    std::vector<Point> points{test::point(config, 0, 1, 10), test::point(config, 1, 2, 6), test::point(config, 2, 2, 8)};
    points[2].pruning = Pruning::memory, points[2].pruned_because = "does not fit: needs 2 GiB";
    points[2].asked_ranks = 2;
    points.push_back(test::point(config, 3, 2, 6));
    points[3].pruning = Pruning::duplicate, points[3].same_as = 1, points[3].pruned_because = "as point 1";
    study_ = create_study(config, train::environment_here(), nullptr, points);
  }
  void append(const std::string& text) const { std::ofstream(study_ / "results.jsonl", std::ios::app) << text; }
  std::string refusal() const {
    return error_of<ConfigError>([this] { read_study(study_); });
  }

  plait::test::TemporaryDirectory folder_;
  fs::path study_;
};

TEST_F(StudyDataTest, ReadsTheTopology) {
  EXPECT_FALSE(read_study(study_).topology) << "a machine without GPUs has none";
  topology::Graph graph;
  graph.nodes = {{.name = "gpu0", .index = 0}, {.name = "gpu1", .index = 1}};
  graph.edges = {{.a = 0, .b = 1, .kind = topology::LinkKind::nvlink, .lanes = 4, .gb_per_s = 82.5, .latency_us = 0.75}};
  graph.pairs = {{.from = 0, .to = 1, .gb_per_s = 78.25, .latency_us = 2}};
  const Config config = test::study_config(folder_.path());
  const fs::path other =
      create_study(config, train::environment_here(), topology::to_json(graph), {test::point(config, 0, 1, 10)});
  const StudyData data = read_study(other);
  EXPECT_EQ(data.topology, graph);
  const Report report = make_report(data);
  const Section& links = *report.find("links");
  ASSERT_EQ(links.table.rows.size(), 2U);
  EXPECT_EQ(links.table.rows[0][1].text, "nvlink × 4");
  EXPECT_EQ(links.table.rows[1][2].text, "78.25");
  EXPECT_EQ(links.table.rows[1][4].text, "measured");
}

TEST_F(StudyDataTest, ReadsWhatWasWritten) {
  {
    StudyFolder folder(study_);
    Round first = round(0, 1, {10.5, 9.25});
    first.measured->devices = {
        {.device = "cuda:0", .name = "GPU", .power_w = 300.5, .energy_j = 12, .throttle_reasons = {"sw_power_cap"}}};
    first.measured->validation_loss = 3.5, first.measured->tokens = 1 << 20;
    folder.add(first);
    folder.add(failed(1, 1, Outcome::out_of_memory, "host:0: out of memory \xff"));
    folder.add(Stop{StopReason::over_budget, "t"});
  }
  const StudyData data = read_study(study_);
  ASSERT_EQ(data.points.size(), 4U);
  EXPECT_EQ(data.points[2].pruned_because, "does not fit: needs 2 GiB");
  EXPECT_EQ(data.points[2].asked_ranks, 2);
  EXPECT_EQ(data.points[3].same_as, 1);
  EXPECT_EQ(data.points[1].facts->hardware_flops_per_token, 8000);
  EXPECT_EQ(data.points[1].prediction->step_ms, 6);
  EXPECT_EQ(data.points[0].label(), "ranks=1 layout=\"number 0\"");
  ASSERT_EQ(data.rounds.size(), 2U);
  EXPECT_EQ(data.rounds[0].measured->step_ms, (std::vector<double>{10.5, 9.25}));
  EXPECT_EQ(data.rounds[0].measured->devices.at(0).power_w, 300.5);
  EXPECT_EQ(data.rounds[0].measured->devices.at(0).throttle_reasons, std::vector<std::string>{"sw_power_cap"});
  EXPECT_EQ(data.rounds[0].measured->validation_loss, 3.5);
  EXPECT_THAT(data.rounds[1].message, HasSubstr("out of memory"));
  EXPECT_EQ(data.stops.size(), 1U);
  EXPECT_EQ(data.environment.machine(), train::environment_here().machine());
  EXPECT_EQ(to_yaml(data.config), to_yaml(test::study_config(folder_.path())));
}

TEST_F(StudyDataTest, StatesFollowFromRoundsAndStops) {
  StudyFolder folder(study_);
  StudyData& data = folder.data();
  EXPECT_EQ(data.state_of(2), PointState::pruned);
  EXPECT_EQ(data.state_of(0), PointState::interrupted);
  folder.add(round(0, 1, {10}));
  EXPECT_EQ(data.state_of(0), PointState::interrupted) << "two rounds at least";
  folder.add(Stop{StopReason::over_budget, "t"});
  EXPECT_EQ(data.state_of(0), PointState::over_budget);
  folder.add(round(0, 2, {10.1}));
  EXPECT_EQ(data.state_of(0), PointState::over_budget) << "two rounds have no interval of 95 %, and a third is allowed";
  folder.add(round(0, 3, {10.1}));
  EXPECT_EQ(data.state_of(0), PointState::ok) << "all that are allowed";
  folder.add(round(1, 1, {6})), folder.add(round(1, 2, {7}));
  EXPECT_EQ(data.state_of(1), PointState::over_budget);
  folder.add(failed(1, 3, Outcome::timed_out, "ran longer than 1 s"));
  EXPECT_EQ(data.state_of(1), PointState::timed_out);
  EXPECT_EQ(data.failure_of(1)->round, 3);
  EXPECT_EQ(data.baseline, 0);
}

TEST_F(StudyDataTest, ALineThatACrashLeftHalfWrittenDoesNotCount) {
  const std::string line = record_json(round(0, 1, {10})).dump();
  append(line + "\n" + line.substr(0, line.size() / 2));
  EXPECT_EQ(read_study(study_).rounds.size(), 1U);
  StudyFolder(study_).add(round(0, 2, {11}));
  EXPECT_EQ(read_study(study_).rounds.size(), 2U) << "the next owner cuts it off";
}

TEST_F(StudyDataTest, OneOwnerAtATime) {
  const StudyFolder owner(study_);
  EXPECT_THAT(error_of<ConfigError>([this] { StudyFolder(study_).warning(); }), HasSubstr("in use"));
}

TEST_F(StudyDataTest, ARoundOfAStudyThatHasNoneIsRefusedWithACommandThatAShellReads) {
  const fs::path moved = folder_.path() + "/a b";
  fs::rename(study_, moved);
  EXPECT_THAT(error_of<ConfigError>([&] { StudyFolder(moved, 1).warning(); }),
              HasSubstr("plait study --resume '" + moved.string() + "'"));
}

TEST_F(StudyDataTest, RefusesWhatIsDamagedNamingFileAndLine) {
  const auto with = [&](const std::string& line) {
    std::ofstream(study_ / "results.jsonl") << record_json(round(0, 1, {10})).dump() << "\n" << line << "\n";
    return refusal();
  };
  EXPECT_THAT(with("{"), HasSubstr("results.jsonl:2: is not JSON"));
  EXPECT_THAT(with("[]"), HasSubstr("results.jsonl:2"));
  EXPECT_THAT(with("{\"record\": \"rond\"}"), HasSubstr("'record' is \"rond\": must be one of round, stop"));
  EXPECT_THAT(with(record_json(round(4, 1, {10})).dump()), HasSubstr("'point' is 4: must be a whole number from 0 to 3"));
  EXPECT_THAT(with(record_json(round(2, 1, {10})).dump()), HasSubstr("not pruned"));
  EXPECT_THAT(with(record_json(round(0, 1, {})).dump()), HasSubstr("measured.step_ms"));
  EXPECT_THAT(with(record_json(round(0, 1, {-1})).dump()), HasSubstr("measured.step_ms"));
  auto text = record_json(round(0, 1, {10}));
  text["measured"]["ledgers"][0]["kinds"] = 3;
  EXPECT_THAT(with(text.dump()), HasSubstr("ledger"));
  text = record_json(round(0, 1, {10})), text["round"] = 1e300;
  EXPECT_THAT(with(text.dump()), HasSubstr("'round' is 1e+300: must be a whole number"));
  text = record_json(round(0, 1, {10})), text["outcome"] = "well";
  EXPECT_THAT(with(text.dump()), HasSubstr("\"well\": must be ok, out of memory, failed or timed out"));
}

TEST_F(StudyDataTest, RefusesAFolderThatIsNone) {
  EXPECT_THAT(error_of<ConfigError>([this] { read_study(folder_.path()); }), HasSubstr("not a study's folder"));
  std::ofstream(study_ / "points.jsonl") << "";
  EXPECT_THAT(refusal(), HasSubstr("holds no points"));
  std::ofstream(study_ / "environment.json") << "{}";
  EXPECT_THAT(refusal(), HasSubstr("environment.json"));
  std::ofstream(study_ / "environment.json") << "{\"topology\":" << std::string(1'000'000, '[');
  EXPECT_THAT(refusal(), HasSubstr("environment.json: is nested deeper than 100 levels"));
}

TEST_F(StudyDataTest, RefusesAPointWhoseAxesAreNotItsRanks) {
  const auto with = [&](int ranks, int pipeline, int data, int tensor) {
    auto point = record_json(test::point(test::study_config(folder_.path()), 0, 1, 10));
    point["facts"]["ranks"] = ranks;
    point["facts"]["layout"] = {{"pipeline", pipeline}, {"data", data}, {"tensor", tensor}};
    std::ofstream(study_ / "points.jsonl") << point.dump() << "\n";
    return refusal();
  };
  EXPECT_THAT(with(65536, 65536, 65536, 65536),
              HasSubstr("points.jsonl:1: 'facts.layout.data' is 65536: must be a whole number from 1 to 1"));
  EXPECT_THAT(with(8, 2, 2, 1), HasSubstr("'facts.layout.tensor' is 1: must be such that the axes make 8 ranks"));
}

}  // namespace
}  // namespace plait::study
