// Overlap as a test: `plait bench step` and `plait verify` fail with the ledger where ranks lose more than they may.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>

#include "app/run_plait.h"
#include "verify/report.h"
#include "verify/verify_cases.h"

namespace plait::app {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using verify::test::verify_request;

class BenchBounds : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "plait-bounds-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    std::ofstream(directory_ / "bench.yaml") << verify::test::verify_yaml();
  }
  void TearDown() override { fs::remove_all(directory_); }
  Outcome bench(const std::string& arguments) {
    return run_plait(directory_, "bench step " + (directory_ / "bench.yaml").string() +
                                     " --warmup 2 --steps 3 --set parallel.pipeline=2 --set parallel.data=1 " + arguments);
  }
  fs::path directory_;
};

// Two stages take turns, so one of them waits for half of a step or so; nobody waits for more than all of it.
TEST_F(BenchBounds, FailWhereAPipelineHasABubble) {
  for (const char* mode : {"threads", "processes"}) {
    const Outcome outcome =
        bench(std::string("--json --set bounds.bubble=0% --set bounds.exposed=100% --set launch.mode=") + mode);
    EXPECT_EQ(outcome.status, 1) << mode << outcome.errors;
    const auto json = nlohmann::json::parse(outcome.output);
    ASSERT_EQ(json["exceeded_bounds"].size(), 1u) << json["exceeded_bounds"];
    EXPECT_EQ(json["exceeded_bounds"][0]["bound"], "bubble");
    ASSERT_EQ(json["ledgers"].size(), 2u);
    const auto& worst = json["ledgers"][json["exceeded_bounds"][0]["rank"].get<std::size_t>()];
    EXPECT_NEAR(worst["bubble_ms"].get<double>() / worst["step_ms"].get<double>(),
                json["exceeded_bounds"][0]["share"].get<double>(), 1e-9);
  }
}

TEST_F(BenchBounds, PassWhereTheyAreKeptAndPrintTheLedger) {
  const Outcome outcome = bench("--set bounds.bubble=100% --set bounds.exposed_p2p=100%");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("exposed p2p"), HasSubstr("worst         rank"), Not(HasSubstr("EXCEEDED"))));
  const Outcome exceeded = bench("--set bounds.bubble=0%");
  EXPECT_EQ(exceeded.status, 1);
  EXPECT_THAT(exceeded.output, AllOf(HasSubstr("exposed p2p"), HasSubstr("EXCEEDED      bounds.bubble: 0 % allowed")));
}

TEST_F(BenchBounds, HaveToBePercentages) {
  const Outcome outcome = bench("--set bounds.bubble=0.05");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("bounds.bubble"), HasSubstr("a percentage")));
}

TEST(VerifyOverlapBounds, FailALayoutThatComputesTheRightThing) {
  const verify::VerifyReport report = verify::verify(verify_request({"pipeline=2", "tensor=2"}, {}, {"bounds.bubble=0%"}));
  ASSERT_EQ(report.layouts.size(), 2u);
  const verify::LayoutResult& pipeline = report.layouts[0];
  EXPECT_FALSE(pipeline.passed());
  EXPECT_TRUE(pipeline.findings.passed()) << "its numbers are right";
  EXPECT_FALSE(pipeline.findings.first_divergence.has_value());
  ASSERT_EQ(pipeline.exceeded.size(), 1u);
  EXPECT_EQ(pipeline.findings.ledgers.size(), 2u);
  EXPECT_TRUE(report.layouts[1].passed()) << "ranks that share every segment have no bubble";
  EXPECT_GT(report.layouts[1].findings.ledgers[0].exposed_tp_ms(), 0);

  const auto json = nlohmann::json::parse(to_json(report).dump());
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["layouts"][0]["passed"], false);
  EXPECT_EQ(json["layouts"][0]["exceeded_bounds"][0]["bound"], "bubble");
  EXPECT_EQ(json["layouts"][0]["ledgers"].size(), 2u);
  EXPECT_TRUE(json["layouts"][1]["exceeded_bounds"].empty());
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(verify::to_junit(report).c_str()));
  const pugi::xml_node failure = document.child("testsuites").child("testsuite").child("testcase").child("failure");
  EXPECT_THAT(failure.attribute("message").value(), HasSubstr("bounds.bubble: 0 % allowed"));
  EXPECT_THAT(failure.text().get(), HasSubstr("exposed p2p"));
}

TEST(VerifyOverlapBounds, AreNotThereUnlessAskedFor) {
  EXPECT_TRUE(verify::verify(verify_request({"pipeline=2"})).layouts[0].passed());
  EXPECT_TRUE(
      verify::verify(verify_request({"pipeline=2"}, {}, {"bounds.bubble=100%", "bounds.exposed=100%"})).layouts[0].passed());
}

}  // namespace
}  // namespace plait::app
