// The program's `verify`, as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "app/run_plait.h"
#include "data/data_files.h"
#include "launch/launch_fixtures.h"
#include "test_paths.h"
#include "verify/verify_cases.h"

namespace plait::app::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class VerifyCommand : public testing::Test {
 protected:
  void SetUp() override { config_ = folder_.write("verify.yaml", verify::test::verify_yaml()); }
  void TearDown() override { EXPECT_TRUE(std::filesystem::is_empty(temporary_.path())) << "left something in TMPDIR"; }
  Outcome verify(const std::string& arguments) { return run_plait(folder_.path(), "verify " + config_ + " " + arguments); }

  data::DataFolder folder_;
  std::string config_;
  plait::test::TemporaryDirectory temporary_;
  launch::test::EnvironmentVariable variable_{"TMPDIR", temporary_.path()};
};

TEST_F(VerifyCommand, PrintsATable) {
  const Outcome outcome = verify("--layout tensor=2 --layout 'pipeline=2 schedule=zb-v' --set verify.steps=1");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("tensor=2"), HasSubstr("zb-v"), HasSubstr("all 2 layouts agree")));
  EXPECT_EQ(outcome.errors, "");
}

TEST_F(VerifyCommand, PrintsOneJsonDocumentAndWritesJunit) {
  const std::string junit = folder_ / "junit.xml";
  const Outcome outcome = verify("--layout tensor=2 --json --junit " + junit);
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(nlohmann::json::parse(outcome.output)["passed"], 1);
  EXPECT_THAT(outcome.errors, HasSubstr("the layout agrees"));
  EXPECT_THAT(text_of(junit), HasSubstr("<testcase classname=\"plait.verify.base\" name=\"tensor=2\""));
}

TEST_F(VerifyCommand, ProcessesFindWhatThreadsFind) {
  const std::string arguments =
      "--json --layout 'pipeline=2 data=2 zero=1' --layout tensor=2 --set 'verify.variants=[\"x: model.mlp=swiglu\"]'";
  const Outcome threads = verify(arguments), processes = verify(arguments + " --set launch.mode=processes");
  ASSERT_EQ(processes.status, 0) << processes.errors;
  const auto a = nlohmann::json::parse(threads.output)["layouts"], b = nlohmann::json::parse(processes.output)["layouts"];
  ASSERT_EQ(a.size(), 4u);
  ASSERT_EQ(b.size(), 4u);
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (const char* key : {"max_loss_error", "max_norm_error", "max_grad_error", "max_param_error"})
      EXPECT_EQ(a[i][key], b[i][key]) << key;
  }
}

TEST_F(VerifyCommand, WeakBoundsAreReportedAndFailWithStrict) {
  const Outcome strong =
      verify("--layout tensor=2 --strict --json --set train.optimizer.lr=10 --set train.optimizer.epsilon=1e-8");
  EXPECT_EQ(strong.status, 0) << strong.errors << "verify takes steps of its own";
  EXPECT_EQ(nlohmann::json::parse(strong.output)["weak"], false);
  const std::string weak = "--layout tensor=2 --set verify.lr=10 --set verify.steps=3";
  const Outcome reported = verify(weak), json = verify(weak + " --json"), strict = verify(weak + " --strict");
  EXPECT_EQ(reported.status, 0) << reported.errors;
  EXPECT_THAT(reported.output, AllOf(HasSubstr("  weak  "), HasSubstr("weak: base: the bound of parameter after step 3 is"),
                                     HasSubstr("a smaller verify.lr")));
  EXPECT_EQ(strict.status, 1);
  const auto document = nlohmann::json::parse(json.output);
  EXPECT_EQ(document["weak"], true);
  EXPECT_EQ(document["bounds"]["base"]["weak"].back()["kind"], "parameter");
}

TEST_F(VerifyCommand, AFailureBehindWeakBoundsMayBeNone) {
  const Outcome large = verify("--layout tensor=2 --set verify.lr=100 verify.steps=3");
  EXPECT_EQ(large.status, 1);
  EXPECT_THAT(large.output, AllOf(HasSubstr("FAILED may be no fault here: the first gradients agree"),
                                  HasSubstr("1 layout FAILED"), HasSubstr("a smaller verify.lr")));
  EXPECT_THAT(verify("--layout tensor=2 --set verify.lr=1e6 verify.steps=3").errors,
              HasSubstr("is not finite; nothing can be compared with it: a smaller verify.lr makes smaller steps"));
}

TEST_F(VerifyCommand, RefusesWithStatus2AndAReason) {
  const auto refusal = [&](const std::string& arguments) {
    const Outcome outcome = verify(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_EQ(outcome.output, "") << arguments;
    return outcome.errors;
  };
  EXPECT_THAT(refusal("--layout tensr=2"), HasSubstr("did you mean 'parallel.tensor'"));
  EXPECT_THAT(refusal("--layout tensor=3"), HasSubstr("must divide model.heads=4"));
  EXPECT_THAT(refusal("--layout 'data=2 tensor=2 data=3'"), HasSubstr("gives `data` twice"));
  EXPECT_THAT(refusal("--set verify.stps=1"), HasSubstr("did you mean 'verify.steps'"));
  EXPECT_THAT(refusal("--junit " + (folder_ / "none/junit.xml")), HasSubstr("No such file or directory"));
  EXPECT_THAT(refusal("--job {}"), HasSubstr("--job"));
  EXPECT_EQ(run_plait(folder_.path(), "verify " + (folder_ / "none.yaml")).status, 2);
  EXPECT_EQ(run_plait(folder_.path(), "verify").status, 2);
  EXPECT_THAT(run_plait(folder_.path(), "verify --help").output, AllOf(HasSubstr("--junit"), HasSubstr("--layout")));
}

// What the other models come to is written all the same.
TEST_F(VerifyCommand, ASerialRunThatFailsIsStatus3) {
  const std::string junit = folder_ / "junit.xml";
  const Outcome outcome = verify(
      "--layout data=2 --set 'verify.variants=[\"hot: verify.lr=1e30 train.clip=0\"]' --set train.steps=4 --set verify.steps=4 "
      "--json --junit " +
      junit);
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.errors, HasSubstr("\nplait: the serial run of model hot failed"));
  const auto json = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(json["passed"], 1);
  EXPECT_EQ(json["failed"], 1);
  EXPECT_THAT(text_of(junit), AllOf(HasSubstr("errors=\"1\""), HasSubstr("the serial run of model hot failed")));
}

TEST_F(VerifyCommand, WhatAnEarlierRunWroteStaysWhereThisOneCannotBeDone) {
  const std::string junit = folder_.write("junit.xml", "earlier");
  EXPECT_EQ(verify("--layout tensor=3 --junit " + junit).status, 2);
  EXPECT_EQ(text_of(junit), "earlier");
}

// Processes whose parent is `parent`.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string id, name, state;
    pid_t of = 0;
    if (file >> id >> name >> state >> of && of == parent) children.push_back(std::stoi(id));
  }
  return children;
}

// A rank that dies fails its layout, and the program ends with status 1 when it is through with the others.
TEST_F(VerifyCommand, ALayoutThatFailsIsStatus1) {
  const std::string out = folder_ / "out", errors = folder_ / "errors";
  // The second layout takes long enough to be caught at it.
  const std::string command = std::string("exec ") + test_paths::plait + " verify " + config_ +
                              " --json --set launch.mode=processes --set verify.steps=100 --set train.steps=100"
                              " --layout data=1 --layout 'data=2 zero=1' --layout data=2 >" +
                              out + " 2>" + errors;
  const char* arguments[] = {"sh", "-c", command.c_str(), nullptr};
  pid_t process = 0;
  ASSERT_EQ(::posix_spawn(&process, "/bin/sh", nullptr, nullptr, const_cast<char**>(arguments), environ), 0);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  bool killed = false;
  while (!killed && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (text_of(errors).find("\nbase     data=1") == std::string::npos) continue;
    for (const pid_t child : children_of(process)) {
      if (!killed) killed = ::kill(child, SIGKILL) == 0;
    }
  }
  EXPECT_TRUE(killed);
  int status = 0;
  ASSERT_EQ(::waitpid(process, &status, 0), process);
  EXPECT_EQ(WEXITSTATUS(status), 1) << text_of(errors);
  const auto json = nlohmann::json::parse(text_of(out));
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["passed"], 2);
  EXPECT_THAT(json["layouts"][1]["failure"].get<std::string>(), HasSubstr("killed by signal 9"));
}

}  // namespace
}  // namespace plait::app::test
