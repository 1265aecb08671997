// The program's `bench p2p`, `bench collectives` and `bench ring`, as a user runs them, with ranks as threads and as processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/run_plait.h"
#include "launch/launch_fixtures.h"
#include "verify/verify_cases.h"

namespace plait::app::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class BenchCommand : public testing::TestWithParam<const char*> {
 protected:
  void TearDown() override { EXPECT_TRUE(std::filesystem::is_empty(temporary_.path())) << "left something in TMPDIR"; }
  Outcome bench(const std::string& arguments) { return run_plait(folder_.path(), "bench " + arguments); }
  bool processes() const { return std::string(GetParam()) == "processes"; }
  std::string mode() const { return processes() ? " --device cpu --processes" : " --device cpu"; }

  plait::test::TemporaryDirectory folder_, temporary_;
  launch::test::EnvironmentVariable variable_{"TMPDIR", temporary_.path()};
};

bool has_keys(const json& object, const std::vector<const char*>& keys) {
  bool all = true;
  for (const char* key : keys) {
    EXPECT_TRUE(object.contains(key)) << key << " in " << object.dump();
    all = all && object.contains(key);
  }
  return all;
}

const json& method(const json& methods, const std::string& transport) {
  for (const json& m : methods) {
    if (m["transport"] == transport) return m;
  }
  throw std::runtime_error("no " + transport);
}

TEST_P(BenchCommand, StepTimesAPresetThatLeavesTheVocabularyToTheTokenizer) {
  const std::string mode = std::string(" --set launch.device=cpu --set launch.mode=") + GetParam();
  const Outcome outcome = bench("step --model tiny --ranks 1 --batch 1 --sequence 16 --steps 1 --warmup 1" + mode);
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
}

// None of them becomes another number, and none is told as a line of a file that nobody wrote.
TEST_P(BenchCommand, StepNamesWhatItWasGiven) {
  const auto refusal = [&](const std::string& arguments) {
    const Outcome outcome = bench("step --model " + arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    return outcome.errors;
  };
  EXPECT_THAT(refusal("nosuch"), AllOf(HasSubstr("1 problem"), HasSubstr("model.preset=nosuch: must be one of tiny, ")));
  EXPECT_THAT(refusal("tiny --set model.layers=0"), AllOf(HasSubstr("1 problem"), HasSubstr("model.layers=0: must be ")));
  EXPECT_THAT(refusal("tiny --micro-batches 2305843009213693953"), HasSubstr("--micro-batches: must be a whole number from 1"));
}

TEST_P(BenchCommand, P2pPrintsOneJsonDocument) {
  const Outcome outcome = bench("p2p --sizes 1K,64K --rounds 2 --product-dim 64 --json" + mode());
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const json result = json::parse(outcome.output);
  ASSERT_TRUE(has_keys(result, {"benchmark", "mode", "ranks", "device", "backend", "rounds", "sizes", "notes", "pairs"}));
  EXPECT_EQ(result["benchmark"], "p2p");
  EXPECT_EQ(result["mode"], GetParam());
  EXPECT_EQ(result["sizes"], json({1024, 65536}));
  ASSERT_EQ(result["pairs"].size(), 2u);
  for (const json& pair : result["pairs"]) {
    ASSERT_TRUE(has_keys(pair, {"from", "to", "link", "nvlinks", "peer_access", "methods", "products"}));
    for (const json& m : pair["methods"]) ASSERT_TRUE(has_keys(m, {"transport", "mover", "available", "results"}));
    for (const json& r : method(pair["methods"], "host")["results"]) {
      ASSERT_TRUE(has_keys(r, {"bytes", "microseconds", "microseconds_min", "microseconds_max", "gb_per_s",
                               "both_ways_gb_per_s", "latency_microseconds", "vs_nccl"}));
      EXPECT_GT(r["gb_per_s"], 0);
    }
    const json& direct = method(pair["methods"], "direct");
    EXPECT_EQ(direct["available"], !processes());
    if (processes()) {
      EXPECT_EQ(direct["reason"], "works between threads only: leave out --processes");
    }
    for (const json& row : pair["products"]["beside"]) {
      ASSERT_TRUE(has_keys(
          row, {"transport", "mover", "message_bytes", "messages", "messages_per_product", "equal_load", "from_tflops",
                "to_tflops", "from_slowdown", "from_slowdown_min", "from_slowdown_max", "to_slowdown", "to_slowdown_min",
                "to_slowdown_max", "alone_tflops", "noise", "message_gb_per_s", "arrived", "most_gb_per_s"}));
    }
  }
}

// scripts/p2p-bars reads what the program writes.
TEST_P(BenchCommand, P2pIsHeldAgainstTheBars) {
  const Outcome outcome =
      bench("p2p --sizes 1K --rounds 1 --no-products --json --pairs 0-1" + mode() + " > " + folder_.path() + "/result.json");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const Outcome bars = run(folder_.path(), std::string("python3 ") + test_paths::source + "/scripts/p2p-bars --json " +
                                               folder_.path() + "/result.json");
  EXPECT_EQ(bars.status, 1) << bars.errors;
  EXPECT_EQ(json::parse(bars.output)["missed"], json({"a pair of GPUs with NVLink between them: not measured"}));
}

TEST_P(BenchCommand, CollectivesPrintsOneJsonDocument) {
  const Outcome outcome = bench("collectives --ranks 3 --min 1K --max 64K --rounds 2 --json" + mode());
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const json result = json::parse(outcome.output);
  ASSERT_TRUE(has_keys(result, {"benchmark", "mode", "ranks", "device", "backend", "rounds", "dtype", "notes", "collectives",
                                "average_busbw_gb_per_s", "wrong"}));
  EXPECT_EQ(result["mode"], GetParam());
  EXPECT_EQ(result["ranks"], 3);
  EXPECT_EQ(result["wrong"], 0);
  ASSERT_EQ(result["collectives"].size(), 4u);
  for (const json& collective : result["collectives"]) {
    EXPECT_EQ(collective["results"].size(), 4u);
    for (const json& row : collective["results"]) {
      ASSERT_TRUE(has_keys(row, {"bytes", "count", "type", "redop", "root", "in_place", "microseconds", "algbw_gb_per_s",
                                 "busbw_gb_per_s", "wrong"}));
      EXPECT_EQ(row["wrong"], 0);
    }
  }
}

TEST_P(BenchCommand, RingPrintsOneJsonDocument) {
  const Outcome outcome = bench("ring --ranks 3 --messages 200 --max 64K --json" + mode());
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const json result = json::parse(outcome.output);
  ASSERT_TRUE(has_keys(
      result, {"benchmark", "mode", "ranks", "device", "backend", "messages", "min_bytes", "max_bytes", "seed", "methods"}));
  EXPECT_EQ(result["mode"], GetParam());
  for (const char* transport : {"host", "nccl"}) {
    const json& m = method(result["methods"], transport);
    EXPECT_EQ(m["available"], true);
    ASSERT_EQ(m["hops"].size(), 3u);
    for (const json& hop : m["hops"]) {
      ASSERT_TRUE(has_keys(hop, {"from", "to", "link", "messages", "checked_bytes", "microseconds", "gb_per_s"}));
      EXPECT_EQ(hop["messages"], 200);
    }
  }
}

TEST_P(BenchCommand, TablesAreForPeople) {
  const Outcome p2p = bench("p2p --sizes 4K --rounds 1 --product-dim 64" + mode());
  EXPECT_THAT(p2p.output, AllOf(HasSubstr("\n0 -> 1, same memory\ntransport  mover"), HasSubstr("x Gloo"),
                                HasSubstr("Gloo       -"), HasSubstr("latency us"), HasSubstr("4 KB"), Not(HasSubstr("nccl"))))
      << p2p.errors;
  const Outcome brief = bench("p2p --brief --sizes 4K --rounds 1 --no-products" + mode());
  EXPECT_THAT(brief.output, AllOf(HasSubstr("most GB/s"), HasSubstr("latency"))) << brief.errors;
  const Outcome collectives = bench("collectives --only all_gather --sizes 4K --rounds 1 --type bf16" + mode());
  EXPECT_THAT(collectives.output, AllOf(HasSubstr("algbw"), HasSubstr("bf16"), HasSubstr("# all_gather")))
      << collectives.errors;
  const Outcome ring = bench("ring --messages 20 --transports host" + mode());
  EXPECT_THAT(ring.output, AllOf(HasSubstr("host"), HasSubstr("1 -> 0"))) << ring.errors;
}

// The mean of the two in the middle, which of two steps are all there are.
TEST_P(BenchCommand, StepTakesTheMedianOfAnEvenNumberOfSteps) {
  std::ofstream(folder_.path() + "/bench.yaml") << verify::test::verify_yaml();
  const Outcome outcome =
      bench("step --config " + folder_.path() + "/bench.yaml" + " --warmup 1 --steps 2 --json --set launch.mode=" + GetParam());
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const json times = json::parse(outcome.output)["step_ms"];
  const double least = times["min"], most = times["max"];
  ASSERT_LT(least, most);
  EXPECT_DOUBLE_EQ(times["median"], (least + most) / 2);
  EXPECT_DOUBLE_EQ(times["mean"], times["median"]);
  EXPECT_EQ(times["median_interval"], json({least, most}));
}

// Those of a planned schedule depend on what segments take, so that a plan made without it holds other bytes.
TEST_P(BenchCommand, StepRunsThePlanOfAPlannedSchedule) {
  std::ofstream(folder_.path() + "/planned.yaml")
      << "model: {layers: 6, hidden: 64, heads: 4, ffn: 256, vocab: 5000}\ndata: {tokenizer: random, sequence_length: 64}\n"
         "train: {steps: 10, global_batch: 24, micro_batch: 1}\nlaunch: {device: cpu, ranks: 2}\n"
         "parallel: {pipeline: 2, data: 1, schedule: planned, virtual_stages: 2}\n";
  const Outcome planned =
      run(folder_.path(), std::string(test_paths::plait) + " plan " + folder_.path() + "/planned.yaml --json");
  ASSERT_EQ(planned.status, 0) << planned.errors;
  const json predicted = json::parse(planned.output)["predicted"];
  const Outcome outcome =
      bench("step --config " + folder_.path() + "/planned.yaml --warmup 1 --steps 1 --json --set launch.mode=" + GetParam());
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const json result = json::parse(outcome.output);
  EXPECT_EQ(result["memory"]["planned_bytes"], predicted["peak_bytes"][0]);
  EXPECT_EQ(result["memory"]["allocated_bytes"], predicted["peak_bytes"][0]);
  EXPECT_EQ(result["predicted"], json({{"step_ms", predicted["step_ms"]}, {"machine", predicted["machine"]}}));
  EXPECT_THAT(outcome.errors, HasSubstr("planned schedule: passes listed for what they take"));
}

TEST_P(BenchCommand, StepFitsTheTerminal) {
  std::ofstream(folder_.path() + "/bench.yaml") << verify::test::verify_yaml();
  const std::string step = std::string(test_paths::plait) + " bench step --config " + folder_.path() +
                           "/bench.yaml --warmup 1 --steps 1 --breakdown --set launch.mode=" + GetParam();
  const Outcome outcome = run(folder_.path(), "COLUMNS=60 " + step + " --set 'parallel={pipeline: 2, data: 1}'");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("\n  batch "), HasSubstr("\n  worst "), HasSubstr("timed by itself")));
  EXPECT_THAT(outcome.output, AllOf(StartsWith("run on 2 × "), HasSubstr("iB planned"), Not(HasSubstr(" 0.00 GiB")),
                                    Not(HasSubstr(" 0.0 TFLOP/s")), Not(HasSubstr(" 0.0000 TFLOP/s"))))
      << "a small model by the name of its run";
  for (const char* label : {"  batch ", "  worst ", "  one step "}) {
    const std::size_t begin = outcome.output.find(std::string("\n") + label) + 1;
    EXPECT_LE(outcome.output.find('\n', begin) - begin, 60U) << label;
  }
}

INSTANTIATE_TEST_SUITE_P(, BenchCommand, testing::Values("threads", "processes"),
                         [](const auto& instance) { return std::string(instance.param); });

using BenchOptions = BenchCommand;
INSTANTIATE_TEST_SUITE_P(, BenchOptions, testing::Values("threads"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST_P(BenchOptions, AreRefusedWithStatus2AndAReason) {
  const auto refusal = [&](const std::string& arguments) {
    const Outcome outcome = bench(arguments + " --device cpu");
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_EQ(outcome.output, "") << arguments;
    return outcome.errors;
  };
  EXPECT_THAT(refusal("p2p --min 4X"), HasSubstr("--min"));
  EXPECT_THAT(refusal("p2p --min 4K --max 1K"), HasSubstr("must not be above --max"));
  EXPECT_THAT(refusal("p2p --pairs 0-7"), HasSubstr("must name ranks below 2"));
  EXPECT_THAT(refusal("p2p --pairs 0"), HasSubstr("as 0-1"));
  EXPECT_THAT(refusal("p2p --transports pigeon"), HasSubstr("must be among direct"));
  EXPECT_THAT(refusal("p2p --ranks 1"), HasSubstr("at least 2"));
  for (const char* bench : {"p2p", "collectives", "ring"}) {
    EXPECT_THAT(refusal(bench + std::string(" --ranks 4294967298")),
                AllOf(HasSubstr("--ranks"), HasSubstr("from 0 to 65536, not 4294967298")));
  }
  EXPECT_THAT(refusal("collectives --only gossip"), HasSubstr("must be one of all_reduce"));
  EXPECT_THAT(refusal("ring --messages 0"), HasSubstr("--messages"));
}

TEST_P(BenchOptions, OfAModelAreNotForAConfiguration) {
  for (const char* option : {"--batch 4", "--micro-batches 2", "--sequence 8", "--ranks 2", "--zero 1"}) {
    const Outcome outcome = bench(std::string("step --config x.yaml ") + option);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.errors, HasSubstr("requires --model")) << option;
  }
}

TEST_P(BenchOptions, AreExplained) {
  EXPECT_THAT(bench("--help").output, AllOf(HasSubstr("p2p"), HasSubstr("collectives"), HasSubstr("ring"), HasSubstr("step")));
  EXPECT_THAT(bench("p2p --help").output,
              AllOf(HasSubstr("--pairs"), HasSubstr("10^9 bytes per second"), HasSubstr("1024 bytes")));
  EXPECT_THAT(bench("collectives --help").output, AllOf(HasSubstr("--only"), HasSubstr("microseconds")));
  EXPECT_THAT(bench("ring --help").output, AllOf(HasSubstr("--messages"), HasSubstr("10^9 bytes per second")));
}

}  // namespace
}  // namespace plait::app::test
