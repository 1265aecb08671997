// `plait study report` and `plait study compare` on studies that are on the disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "program_test.h"
#include "study/study_folder.h"
#include "study/synthetic_study.h"

namespace plait::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class StudyReportCommand : public ProgramTest {
 protected:
  // The study's folder is `name` in the test's.
  std::string store(const std::string& name, study::StudyData data) {
    data.config.run.dir = folder.path(), data.config.run.name = name;
    data.config.study.bounds.regression = "2%";
    const auto directory = study::create_study(data.config, data.environment, nullptr, data.points);
    study::StudyFolder stored(directory);
    for (const study::Round& round : data.rounds) stored.add(round);
    stored.add(study::Stop{study::StopReason::complete, "2026-11-23T03:09:17Z"});
    return directory.string();
  }
};

TEST_F(StudyReportCommand, WritesThePageAndItsData) {
  study::StudyData data = study::test::study({.points = 3});
  const std::string directory = store("s", data);
  const Outcome outcome = plait("study report @/s");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  for (const char* name : {"report.html", "report.md", "report.json", "points.csv", "rounds.csv"}) {
    EXPECT_THAT(outcome.output, HasSubstr(directory + "/" + name));
    EXPECT_GT(std::filesystem::file_size(directory + "/" + name), 100U) << name;
    const auto others = std::filesystem::perms::group_all | std::filesystem::perms::others_all;
    EXPECT_EQ(std::filesystem::status(directory + "/" + name).permissions() & others, std::filesystem::perms::none) << name;
  }
  EXPECT_EQ(plait("study report @/s").status, 0) << "and again";
  EXPECT_THAT(refused("study report @/none"), HasSubstr("not a study's folder"));
}

TEST_F(StudyReportCommand, ComparesTwoStudies) {
  study::test::StudyShape shape{.points = 3, .rounds = 8};
  const study::StudyData before = study::test::study(shape);
  store("old", before), store("again", before);
  shape.slower_buckets = 0.05;
  study::StudyData slower = study::test::study(shape);
  store("slower", slower);
  EXPECT_EQ(plait("study compare @/old @/again").status, 0);
  const Outcome outcome = plait("study compare @/old @/slower --junit @/junit.xml --json");
  EXPECT_EQ(outcome.status, 1) << outcome.errors;
  const auto json = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(json.at("counts").at("slower"), 2);
  EXPECT_EQ(json.at("points").at(1).at("growth").at("account"), "gradient buckets");
  std::ifstream file(path("junit.xml"));
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(file), {}),
              AllOf(HasSubstr("<failure"), HasSubstr("gradient buckets")));
  slower.environment.cpu = "another processor";
  store("elsewhere", slower);
  EXPECT_THAT(refused("study compare @/old @/elsewhere"), HasSubstr("--allow-other-machine"));
  EXPECT_EQ(plait("study compare @/old @/elsewhere --allow-other-machine").status, 1);
  EXPECT_THAT(refused("study compare @/old @/again --junit @/none/x.xml"), HasSubstr("cannot be written"));
}

}  // namespace
}  // namespace plait::app
