// What ranks compare before anything else. The program's own part of it is tests/app/disagreement_test.cpp.
#include "launch/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/error.h"
#include "core/error_of.h"
#include "launch_fixtures.h"
#include "parallel/schedule/schedule.h"

namespace plait::launch::test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string value_of(const std::vector<Fact>& facts, const std::string& name) {
  const auto found = std::ranges::find(facts, name, &Fact::name);
  return found == facts.end() ? "there is no " + name : found->value;
}

class LaunchAgreement : public testing::Test {
 protected:
  // What agree() throws on each rank; "" where it returns. `absent` ranks do not come, and rank 1 waits less long than others.
  std::vector<std::string> outcomes(const std::vector<std::vector<Fact>>& facts, int absent = 0) {
    const auto store = comm::make_directory_rendezvous(directory_.path() + "/job" + std::to_string(jobs_++));
    std::vector<std::string> errors(facts.size());
    {
      std::vector<std::jthread> ranks;
      for (std::size_t r = 0; r < facts.size(); ++r) {
        ranks.emplace_back([&, r] {
          RankContext rank;
          rank.rank = static_cast<int>(r);
          rank.size = static_cast<int>(facts.size()) + absent;
          rank.rendezvous = store;
          try {
            agree(rank, facts[r], milliseconds(absent > 0 && r == 1 ? 100 : 20'000), "/shared");
          } catch (const Error& error) {
            errors[r] = error.what();
          }
        });
      }
    }
    return errors;
  }

  TemporaryDirectory directory_;
  int jobs_ = 0;
};

TEST_F(LaunchAgreement, RanksThatWereStartedAlikeGoOn) {
  const std::vector<Fact> facts = {{"train.steps", "10"}, {"data.train a", "3 bytes"}};
  EXPECT_THAT(outcomes({facts, facts, facts}), testing::Each(""));
}

TEST_F(LaunchAgreement, WhoWaitsForAnAbsentRankSaysSoOnce) {
  const std::vector<Fact> facts = {{"train.steps", "10"}};
  for (const std::string& error : outcomes({facts, facts}, 1)) {
    const std::size_t said = error.find("not all 3 ranks of the job have come: ");
    ASSERT_NE(said, std::string::npos) << error;
    EXPECT_EQ(error.find("not all", said + 1), std::string::npos) << error;
    EXPECT_THAT(error, HasSubstr("rank 2 did not start"));
  }
}

TEST_F(LaunchAgreement, EveryRankNamesKeyRanksAndBothValues) {
  const std::vector<Fact> facts = {{"train.steps", "10"}, {"run.seed", "1"}},
                          other = {{"train.steps", "10"}, {"run.seed", "2"}};
  EXPECT_THAT(outcomes({facts, other, facts, other}),
              testing::Each(AllOf(HasSubstr("run.seed=2: on ranks 1, 3, but 1 on ranks 0, 2"), Not(HasSubstr("train.steps")))));
}

TEST_F(LaunchAgreement, EachWayToDifferIsNamedAndWhatOneSideLacks) {
  EXPECT_THAT(
      outcomes({{{"a", "1"}, {"b", "1"}}, {{"a", "2"}, {"b", "1"}}, {{"a", "1"}, {"c", "1"}}}),
      testing::Each(AllOf(HasSubstr("a=2: on rank 1, but 1 on rank 0"), HasSubstr("b=nothing: on rank 2, but 1 on rank 0"),
                          HasSubstr("c=1: on rank 2, but nothing on rank 0"))));
}

TEST_F(LaunchAgreement, ManyDifferencesAreCounted) {
  std::vector<Fact> a, b;
  for (int i = 0; i < 1000; ++i)
    a.push_back({"file " + std::to_string(i), "1"}), b.push_back({"file " + std::to_string(i), "2"});
  EXPECT_THAT(outcomes({a, b}),
              testing::Each(AllOf(HasSubstr("file 19=2"), Not(HasSubstr("file 20")), HasSubstr("and 980 more"))));
}

// What another process wrote goes to the terminal.
TEST_F(LaunchAgreement, NamesThatAreNoTextAreShownAsText) {
  EXPECT_THAT(outcomes({{{"data.train \xff\x1b[2J", "1"}}, {{"data.train \xff\x1b[2J", "2"}}}),
              testing::Each(AllOf(HasSubstr("[2J=2: on rank 1"), Not(HasSubstr("\x1b")), Not(HasSubstr("\xff")))));
}

TEST_F(LaunchAgreement, FactsAreKeysFilesAndVersions) {
  const std::string text = directory_.path() + "/text", missing = directory_.path() + "/missing";
  std::ofstream(text) << "twelve bytes";
  Config config;
  config.launch.device = "cpu";
  config.data.train = {directory_.path() + "/te*"};
  config.data.validation = {missing};
  config.train.optimizer.lr = 0.25;
  config.comm.interface = "10.0.0.7";
  config.launch.rendezvous = "/shared";
  const std::vector<Fact> facts = facts_of(config, parallel::Decision{});
  EXPECT_EQ(value_of(facts, "train.optimizer.lr"), "0.25");
  EXPECT_EQ(value_of(facts, "kind of device"), "CPU");
  EXPECT_THAT(value_of(facts, "version of plait"), testing::StartsWith("0."));
  EXPECT_THAT(value_of(facts, "communication"), HasSubstr("Gloo 0."));
  EXPECT_THAT(value_of(facts, "version of OpenBLAS"), testing::StartsWith("0."));
  EXPECT_THAT(value_of(facts, "data.train " + text), testing::ContainsRegex("^12 bytes, changed 20..-..-..T..:..:..Z$"));
  EXPECT_THAT(value_of(facts, "data.validation, its files"), HasSubstr("matches no file"));
  const parallel::Decision planned{.passes = parallel::planned_passes("0F0,0B0\n1F0,1B0\n", "plan.json")};
  EXPECT_THAT(value_of(facts_of(config, planned), "parallel.schedule, its passes"), testing::StartsWith("XXH3 "));
  EXPECT_THAT(value_of(facts, "parallel.schedule, its passes"), HasSubstr("there is no"));
  // They name something of a host.
  for (const Fact& fact : facts) EXPECT_THAT(fact.name, testing::Not(testing::AnyOf("comm.interface", "launch.rendezvous")));

  namespace fs = std::filesystem;
  fs::last_write_time(text, fs::last_write_time(text) - std::chrono::seconds(5));
  EXPECT_NE(value_of(facts_of(config, parallel::Decision{}), "data.train " + text), value_of(facts, "data.train " + text));
}

TEST_F(LaunchAgreement, ADirectoryThatAnEarlierJobLeftIsRefused) {
  RankContext rank;
  rank.rendezvous = comm::make_directory_rendezvous(directory_.path() + "/left");
  agree(rank, {}, milliseconds(1000), "/shared");
  EXPECT_THAT(error_of<ConfigError>([&] { agree(rank, {}, milliseconds(1000), "/shared"); }),
              AllOf(HasSubstr("launch.rendezvous=/shared"), HasSubstr("earlier job"), HasSubstr("fresh directory")));
}

TEST_F(LaunchAgreement, AJobOfThreadsHasNothingToCompare) {
  Config config;
  config.launch.mode = LaunchMode::threads;
  config.data.train = {directory_.path() + "/missing"};
  EXPECT_EQ(join_job(config, parallel::Decision{}), nullptr);
}

TEST(JoinedRanks, HearWhatAnotherFailsAtBeforeItStarts) {
  const EnvironmentVariable rank("RANK", "3"), size("WORLD_SIZE", "4"), local("LOCAL_RANK", "3");
  const std::shared_ptr<comm::Rendezvous> store = comm::make_thread_rendezvous();
  Config config;
  config.launch.mode = LaunchMode::external;
  config.launch.rendezvous = "tcp";
  EXPECT_EQ(or_end_job(store, config, [] { return 7; }), 7);
  store->check();
  EXPECT_THAT(error_of<ConfigError>([&] { or_end_job(store, config, []() -> int { throw ConfigError("no such GPU"); }); }),
              HasSubstr("no such GPU"));
  EXPECT_THAT(error_of<CommError>([&] { store->check(); }), HasSubstr("rank 3: no such GPU"));
}

}  // namespace
}  // namespace plait::launch::test
