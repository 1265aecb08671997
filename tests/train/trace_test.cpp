// trace.json of whole runs: one file for all ranks, in which everything is where it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "app/run_plait.h"
#include "parallel/job_plan.h"
#include "parallel/trace_events.h"
#include "train/trainer.h"

namespace plait::train {
namespace {

namespace fs = std::filesystem;

class TraceTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "plait-trace-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }

  Config config(const std::vector<std::string>& set) const {
    return parse_config("run: {name: run, dir: " + directory_.string() +
                            "}\n"
                            "model: {layers: 2, hidden: 32, heads: 4, ffn: 64, vocab: 64}\n"
                            "data: {tokenizer: random, sequence_length: 16}\n"
                            "train: {steps: 6, global_batch: 8, micro_batch: 2}\n"
                            "comm: {bucket_mb: 0.02}\n"
                            "launch: {device: cpu}\n"
                            "checkpoint: {final: false}\n"
                            "log: {every: 2, tensorboard: false}\n",
                        set);
  }
  nlohmann::json run(const std::vector<std::string>& set) {
    EXPECT_EQ(train({launch::settle(config(set), parallel::Decision{}), {}, {}}), 0);
    std::ifstream file(directory_ / "run" / "trace.json");
    EXPECT_TRUE(file.good()) << "no trace.json";
    return nlohmann::json::parse(file);
  }
  static std::vector<nlohmann::json> events(const nlohmann::json& trace, const std::string& phase) {
    std::vector<nlohmann::json> list;
    for (const nlohmann::json& event : trace.at("traceEvents")) {
      if (event.at("ph") == phase) list.push_back(event);
    }
    return list;
  }

  fs::path directory_;
};

TEST_F(TraceTest, ShowsEveryInstructionOfEveryRankOnce) {
  const std::vector<std::string> set = {"log.trace_steps=[3, 4]", "parallel.pipeline=2", "parallel.data=2"};
  const nlohmann::json trace = run(set);
  const Config c = config(set);
  const auto plans =
      parallel::make_job_plan(c, parallel::Decision{}, 64, parallel::resolve_layout(c.parallel, 4), DeviceKind::host);

  // Slices of instructions, by (rank, step, name).
  std::map<std::tuple<int, int, std::string>, int> seen;
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> threads;
  for (const nlohmann::json& event : events(trace, "X")) {
    const std::string category = event.at("cat");
    const double begin = event["ts"], end = begin + event["dur"].get<double>();
    threads[{event["pid"], event["tid"]}].emplace_back(begin, end);
    const std::string name = event["name"];
    if (category == "wait" && !name.starts_with("barrier ")) continue;  // which is an instruction and a wait
    ++seen[{event["pid"], event["args"]["step"], name}];
  }
  std::map<std::tuple<int, int, std::string>, int> expected;
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    for (const parallel::Instruction& i : plans[rank].train.instructions) {
      for (const int step : {3, 4}) ++expected[{static_cast<int>(rank), step, to_string(i)}];
    }
  }
  EXPECT_EQ(seen, expected);
  // A stream does one thing at a time.
  for (auto& [thread, slices] : threads) {
    std::sort(slices.begin(), slices.end());
    for (std::size_t s = 1; s < slices.size(); ++s) {
      EXPECT_LE(slices[s - 1].second, slices[s].first + 0.01) << thread.first << " " << thread.second;
    }
  }
  // Both steps as a whole, on each rank.
  EXPECT_EQ(events(trace, "b").size(), 8u);
  std::set<std::string> names;
  for (const nlohmann::json& event : events(trace, "M")) {
    if (event["args"].contains("name")) names.insert(event["args"]["name"].get<std::string>());
  }
  EXPECT_TRUE(names.contains("compute"));
  EXPECT_TRUE(names.contains("receive from pipeline rank 0"));
  EXPECT_THAT(names, testing::Contains(testing::StartsWith("rank 3 (pipeline 1, data 1, tensor 0) on host:3")));
}

TEST_F(TraceTest, HasAnArrowFromEachSendToItsReceive) {
  const nlohmann::json trace = run({"log.trace_steps=[3]", "parallel.pipeline=2", "parallel.data=1"});
  std::map<std::string, nlohmann::json> from, to;
  for (const nlohmann::json& event : events(trace, "s")) EXPECT_TRUE(from.try_emplace(event["id"], event).second);
  for (const nlohmann::json& event : events(trace, "f")) EXPECT_TRUE(to.try_emplace(event["id"], event).second);
  EXPECT_EQ(from.size(), 8u) << "four micro-batches, forward and back";
  ASSERT_EQ(from.size(), to.size());
  const auto within_slice = [&](const nlohmann::json& event, const char* kind) {
    for (const nlohmann::json& slice : events(trace, "X")) {
      const double begin = slice["ts"], end = begin + slice["dur"].get<double>();
      const bool same = slice["pid"] == event["pid"] && slice["tid"] == event["tid"] && slice["cat"] == "communication";
      if (same && begin <= event["ts"] && event["ts"] <= end) return slice["name"].get<std::string>().starts_with(kind);
    }
    return false;
  };
  for (const auto& [id, send] : from) {
    ASSERT_TRUE(to.contains(id)) << id;
    const nlohmann::json& receive = to.at(id);
    EXPECT_NE(send["pid"], receive["pid"]);
    EXPECT_TRUE(within_slice(send, "send_")) << id;
    EXPECT_TRUE(within_slice(receive, "receive_")) << id;
    // Ranks read the clock with an uncertainty of the time it takes to wake a thread.
    EXPECT_LT(send["ts"].get<double>(), receive["ts"].get<double>() + 20'000) << id;
  }
}

TEST_F(TraceTest, ShowsExchangesOnAStreamOfTheirOwn) {
  const nlohmann::json trace = run({"log.trace_steps=[2]", "parallel.tensor=2", "parallel.data=1"});
  std::set<int> threads, compute;
  int exchanges = 0;
  for (const nlohmann::json& event : events(trace, "X")) {
    const std::string name = event["name"];
    if (name.starts_with("forward ")) compute.insert(event["tid"].get<int>());
    // Norms between two collectives are on their stream.
    if (!name.starts_with("reduce_scatter of ") && !name.starts_with("all_gather of ")) continue;
    if (event["args"].contains("bucket")) continue;
    EXPECT_EQ(event["cat"], "communication") << name;
    threads.insert(event["tid"].get<int>());
    ++exchanges;
  }
  // Of two ranks and four micro-batches: a sum and a gather before each segment but the embedding in both directions, and the
  // statistics before the loss.
  EXPECT_EQ(exchanges, 2 * 4 * ((2 * 2 + 1) * 2 * 2 + 1)) << "two layers";
  EXPECT_EQ(threads.size(), 1u);
  EXPECT_TRUE(!compute.contains(*threads.begin()));
}

TEST_F(TraceTest, IsWrittenByRanksThatAreProcessesToo) {
  std::ofstream(directory_ / "config.yaml")
      << to_yaml(config({"log.trace_steps=[1, 6, 7]", "parallel.data=2", "launch.mode=processes"}));
  const app::Outcome outcome = app::run_plait(directory_, "train " + (directory_ / "config.yaml").string());
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output + outcome.errors, testing::HasSubstr("trace: " + (directory_ / "run" / "trace.json").string()));
  EXPECT_THAT(outcome.output + outcome.errors,
              testing::HasSubstr("log.trace_steps: step 7 is not traced, the run ends with train.steps=6"));
  std::ifstream file(directory_ / "run" / "trace.json");
  std::set<std::pair<int, int>> steps;  // of ranks
  for (const nlohmann::json& event : events(nlohmann::json::parse(file), "X")) {
    if (event["args"].contains("step")) steps.emplace(event["pid"].get<int>(), event["args"]["step"].get<int>());
  }
  EXPECT_EQ(steps, (std::set<std::pair<int, int>>{{0, 1}, {0, 6}, {1, 1}, {1, 6}})) << "step 7 is not one of this run";
}

TEST_F(TraceTest, IsNotWrittenWhereNoStepIsToBeTraced) {
  ASSERT_EQ(train({launch::settle(config({"parallel.data=2"}), parallel::Decision{}), {}, {}}), 0);
  EXPECT_FALSE(fs::exists(directory_ / "run" / "trace.json"));
}

parallel::RankPlan small_plan() {
  Config config;
  config.model.layers = 1, config.model.hidden = 32, config.model.heads = 4, config.model.vocab = 64, config.model.ffn = 64;
  config.data.sequence_length = 8;
  config.train.steps = 1, config.train.global_batch = 1, config.train.micro_batch = 1;
  return parallel::make_rank_plan(config, parallel::Decision{}, 64, parallel::Layout{}, 0, DeviceKind::host);
}

TEST(TraceEvents, ShowWhatAGpuRanAndLeaveItOutFirst) {
  const parallel::RankPlan plan = small_plan();
  parallel::TracedStep step;
  const auto now = std::chrono::steady_clock::now();
  step.trace.origin = now;
  for (int n = 0; n < static_cast<int>(plan.train.instructions.size()); ++n)
    step.trace.slices.push_back({n, 1.0 * n, 1.0 * n, n + 0.5, {}});
  step.activities = {{"matrix \"product\" \\", 0, now, now + std::chrono::microseconds(5)},
                     {"copy 12 bytes", -1, now, now + std::chrono::microseconds(5)},
                     {"of the step before", 0, now - std::chrono::seconds(1), now}};
  const parallel::TraceText whole = trace_events(plan.train, plan.layout, plan.rank, "cuda:0", {step}, 1, 1 << 20);
  EXPECT_EQ(whole.left_out, 0u);
  const nlohmann::json trace = nlohmann::json::parse(parallel::trace_file({whole.events, whole.events}));
  std::map<std::string, int> names;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event.value("cat", "") == "device") ++names[event["name"]];
  }
  EXPECT_EQ(names, (std::map<std::string, int>{{"matrix \"product\" \\", 2}, {"copy 12 bytes", 2}}));
  const parallel::TraceText bounded = trace_events(plan.train, plan.layout, plan.rank, "cuda:0", {step}, 1, 10);
  EXPECT_EQ(bounded.left_out, 2u);
  EXPECT_EQ(
      nlohmann::json::parse(parallel::trace_file({bounded.events}))["traceEvents"].size() > plan.train.instructions.size(),
      true);
}

TEST(TraceEvents, ShowAKernelFromWhenTheOneBeforeItHasEnded) {
  const parallel::RankPlan plan = small_plan();
  parallel::TracedStep step;
  const auto origin = std::chrono::steady_clock::now();
  step.trace.origin = origin;
  const auto at = [&](int microseconds) { return origin + std::chrono::microseconds(microseconds); };
  // As CUPTI may give them: in any order, and a kernel from when its first block is on the GPU.
  step.activities = {{"second", 0, at(3), at(9)},     {"first", 0, at(0), at(5)},
                     {"third", 0, at(20), at(30)},    {"on another stream", 1, at(4), at(6)},
                     {"elsewhere", -1, at(1), at(8)}, {"elsewhere too", -1, at(2), at(7)}};
  const parallel::TraceText text = trace_events(plan.train, plan.layout, plan.rank, "cuda:0", {step}, 1, 1 << 20);
  const nlohmann::json trace = nlohmann::json::parse(parallel::trace_file({text.events}));
  std::map<std::string, std::pair<int, int>> times;  // begin and duration
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event.value("cat", "") != "device") continue;
    const double begin =
        event["ts"].get<double>() - std::chrono::duration<double, std::micro>(origin.time_since_epoch()).count();
    times[event["name"]] = {static_cast<int>(std::lround(begin)), static_cast<int>(std::lround(event["dur"].get<double>()))};
  }
  EXPECT_EQ(times, (std::map<std::string, std::pair<int, int>>{{"first", {0, 5}},
                                                               {"second", {5, 4}},
                                                               {"third", {20, 10}},
                                                               {"on another stream", {4, 2}},
                                                               {"elsewhere", {1, 7}},
                                                               {"elsewhere too", {2, 5}}}));
}

}  // namespace
}  // namespace plait::train
