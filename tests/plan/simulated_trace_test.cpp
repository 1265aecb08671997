#include "plan/simulation/simulated_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include <map>
#include <nlohmann/json.hpp>

#include "parallel/make_layout.h"
#include "plan/random_work.h"
#include "plan/simulation_jobs.h"
#include "plan/simulation_networks.h"

namespace plait::plan {
namespace {

using parallel::ProgramSet;

class SimulatedTrace : public testing::Test {
 protected:
  SimulatedTrace()
      : set_(parallel::make_set({.schedule = {ScheduleKind::one_f_one_b, 2, 1, 3}, .data = 2, .tensor = 2, .zero = 1})) {
    simulated_ = simulate_step(set_, RandomWork(set_, 3), two_halves(8, 3, 1), in_order(8), {.keep_timeline = true});
  }
  nlohmann::json trace(const std::vector<int>& ranks) const {
    return nlohmann::json::parse(
        simulated_trace(set_, simulated_, ranks, [](int rank) { return "cuda:" + std::to_string(rank); }));
  }
  static std::vector<nlohmann::json> events(const nlohmann::json& trace, const std::string& phase) {
    std::vector<nlohmann::json> found;
    for (const nlohmann::json& event : trace["traceEvents"]) {
      if (event["ph"] == phase) found.push_back(event);
    }
    return found;
  }

  ProgramSet set_;
  Simulated simulated_;
};

TEST_F(SimulatedTrace, ShowsEveryInstructionWhenItRan) {
  const nlohmann::json trace = this->trace(in_order(8));
  std::map<std::pair<int, std::string>, std::vector<double>> ends;  // by rank and name, microseconds
  double earliest = 1e300;
  for (const nlohmann::json& event : events(trace, "X")) {
    earliest = std::min(earliest, event["ts"].get<double>());
    if (event["cat"] != "wait" ||
        event["name"].get<std::string>().starts_with("barrier "))  // a barrier is an instruction and a wait
      ends[{event["pid"], event["name"]}].push_back(event["ts"].get<double>() + event["dur"].get<double>());
  }
  EXPECT_NEAR(earliest, 0, 1e-3);
  const double step_end = events(trace, "e").at(0)["ts"];
  for (int rank = 0; rank < 8; ++rank) {
    const auto& times = simulated_.timeline_of(rank);
    for (std::size_t n = 0; n < times.size(); ++n) {
      const auto it = ends.find({rank, to_string(set_.program(rank).instructions[n])});
      ASSERT_NE(it, ends.end()) << rank << ", " << n;
      const double expected = step_end + 1e6 * (times[n].end - simulated_.step_seconds);
      EXPECT_THAT(it->second, testing::Contains(testing::DoubleNear(expected, 0.01))) << rank << ", " << it->first.second;
    }
  }
}

TEST_F(SimulatedTrace, HasTheRowsOfAMeasuredOneAndSaysThatItIsNone) {
  std::vector<std::string> names;
  for (const nlohmann::json& event : events(trace({0, 4}), "M")) {
    if (event["args"].contains("name")) names.push_back(event["args"]["name"]);
  }
  EXPECT_THAT(names, testing::Contains("rank 4 (pipeline 1, data 0, tensor 0) on cuda:4, simulated"));
  for (const char* row : {"compute", "reduce", "send to pipeline rank 1", "receive from pipeline rank 0"})
    EXPECT_THAT(names, testing::Contains(row));
}

TEST_F(SimulatedTrace, HasAnArrowFromEachSendToItsReceive) {
  const nlohmann::json trace = this->trace({0, 4});
  std::map<std::string, nlohmann::json> from, to;
  for (const nlohmann::json& event : events(trace, "s")) EXPECT_TRUE(from.try_emplace(event["id"], event).second);
  for (const nlohmann::json& event : events(trace, "f")) EXPECT_TRUE(to.try_emplace(event["id"], event).second);
  EXPECT_EQ(from.size(), 6U) << "three micro-batches, forward and back";
  ASSERT_EQ(from.size(), to.size());
  for (const auto& [id, send] : from) {
    ASSERT_TRUE(to.contains(id)) << id;
    EXPECT_NE(send["pid"], to.at(id)["pid"]);
    EXPECT_LE(send["ts"].get<double>(), to.at(id)["ts"].get<double>()) << id;
  }
}

TEST_F(SimulatedTrace, ShowsWhatWasWaitedForAndExchanges) {
  std::set<std::string> names;
  int exchanged = 0;
  for (const parallel::Instruction& i : set_.program(1).instructions) {
    if (!communicates_in_pass(i)) continue;
    names.insert(to_string(i));
    ++exchanged;
  }
  int waits = 0, shown = 0;
  for (const nlohmann::json& event : events(trace({1}), "X")) {
    waits += event["cat"] == "wait" ? 1 : 0;
    shown += names.contains(event["name"].get<std::string>()) && event["cat"] == "communication" ? 1 : 0;
  }
  EXPECT_GT(waits, 0);
  EXPECT_GT(exchanged, 0);
  EXPECT_EQ(shown, exchanged);
}

TEST_F(SimulatedTrace, OnlyReceivesWaitForASender) {
  int senders = 0, groups = 0;
  for (const nlohmann::json& event : events(trace(in_order(8)), "X")) {
    const std::string name = event["name"], kind = event["args"].value("kind", "");
    groups += name.ends_with(" group has not come yet") ? 1 : 0;
    if (!name.ends_with(" has not sent yet")) continue;
    ++senders;
    EXPECT_TRUE(kind.starts_with("receive_")) << name << " at the head of " << kind;
  }
  EXPECT_GT(senders, 0);
  EXPECT_GT(groups, 0);
}

TEST_F(SimulatedTrace, OfALargeJobIsOfOneRankPerStage) {
  EXPECT_EQ(one_rank_per_stage(parallel::make_layout(3, 4, 2)), (std::vector{0, 8, 16}));
}

}  // namespace
}  // namespace plait::plan
