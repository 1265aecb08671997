// The planner's answers: compared with all candidates, within memory, and as a document.
#include "plan/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/error_of.h"
#include "core/units.h"
#include "parallel/job_plan.h"
#include "parallel/make_layout.h"
#include "plan/report.h"
#include "plan/throughput.h"
#include "test_paths.h"
#include "topology/assumed_topology.h"
#include "topology/import.h"

namespace plait::plan {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr const char* small = R"(
model: {layers: 6, hidden: 256, heads: 8, vocab: 1024}
data: {tokenizer: random, sequence_length: 64}
train: {steps: 1, global_batch: 16, micro_batch: auto}
parallel: {data: auto, tensor: auto, pipeline: auto, schedule: auto, virtual_stages: auto, zero: auto, recompute: auto}
)";
constexpr std::int64_t vocab = 1024;

// A GPU slow enough for a small model to be worth sharing; plans may use this much memory.
Machine slow_gpu(double memory_gib = 16) {
  Machine machine{.profile = topology::nominal_profile("h200"), .calibration = {}};
  machine.profile.half_flops /= 200, machine.profile.memory_bytes_per_s /= 50;
  machine.profile.memory_bytes = (1 + 1e-12) * memory_gib * gib / (1 - free_share);
  machine.profile.context_bytes = machine.profile.collectives_bytes = machine.profile.communicator_bytes = 0;
  return machine;
}

topology::Fabric fixture(const std::string& name) {
  return topology::Fabric(
      topology::import_topology(std::string(test_paths::source) + "/tests/topology/topologies/" + name).graph);
}

TEST(Candidates, AreAllThatTheRulesAllowAndTheOthersSayWhichRuleTheyBreak) {
  const Config config = parse_config(small);
  const Enumeration all = enumerate(config, 4);
  EXPECT_GT(all.candidates.size(), 50U);
  for (const Candidate& c : all.candidates) {
    EXPECT_EQ(c.ranks(), 4);
    Config chosen = with(config, c);
    EXPECT_TRUE(problems_of(chosen).empty()) << c.to_string();
    EXPECT_TRUE(keys_left_to_planner(chosen).empty());
    EXPECT_EQ(std::count(all.candidates.begin(), all.candidates.end(), c), 1) << c.to_string();
  }
  // With three ranks, no tensor group of three (8 heads) and no three data ranks (16 sequences).
  const Enumeration three = enumerate(config, 3);
  for (const Candidate& c : three.candidates) EXPECT_EQ(c.size[Axis::pipeline], 3);
  ASSERT_EQ(three.rejected.size(), 2U);
  EXPECT_THAT(three.rejected[0].reason, HasSubstr("train.global_batch = 16 must be a multiple of"));
  EXPECT_THAT(three.rejected[1].reason, HasSubstr("parallel.tensor = 3 must divide model.heads=8"));
}

TEST(Candidates, WhatIsGivenStays) {
  const Config config =
      parse_config(small, {"parallel.tensor=2", "parallel.schedule=zb-h1", "train.micro_batch=2", "parallel.zero=1"});
  for (const Candidate& c : enumerate(config, 4).candidates) {
    EXPECT_EQ(c.size[Axis::tensor], 2);
    EXPECT_EQ(c.schedule, ScheduleKind::zb_h1);
    EXPECT_EQ(c.micro_batch, 2);
    EXPECT_EQ(c.zero, 1);
  }
}

// The best of all candidates, each simulated: the planner, which simulates only a few, must find it.
double best_of_all(const Config& config, int ranks, const Site& site) {
  Placer placer(*site.fabric);
  double best = std::numeric_limits<double>::infinity();
  for (const Candidate& c : enumerate(config, ranks).candidates) {
    try {
      const Evaluation e = evaluate(with(config, c), parallel::Decision{}, vocab, ranks, site, placer);
      if (memory_problem(e, site.machine).empty()) best = std::min(best, e.step_seconds);
    } catch (const ConfigError&) {
      continue;  // a schedule that does not exist for so few micro-batches
    }
  }
  return best;
}

TEST(Planner, FindsTheBestOfAllWithoutLookingAtAll) {
  const Config config = parse_config(small, {"parallel.recompute=none"});
  for (const char* name : {"bridge_pairs.xml", "two_sockets.xml", "dgx1v.txt"}) {
    topology::Fabric fabric = fixture(name);
    const Site site{.machine = slow_gpu(), .fabric = &fabric, .kind = DeviceKind::cuda};
    const PlannedJob job = plan_job(config, parallel::Decision{}, vocab, 4, site, {.what_if = false});
    EXPECT_LE(job.best.step_seconds, best_of_all(config, 4, site) * (1 + 1e-9))
        << name << ": " << job.best.candidate.to_string();
    EXPECT_LT(job.looked_at, job.enumerated / 2);
    for (const Evaluation& e : job.alternatives) EXPECT_GE(e.step_seconds, job.best.step_seconds);
  }
}

TEST(Planner, AShortenedStepTellsOfTheWholeOne) {
  topology::Fabric fabric = fixture("two_sockets.xml");
  const Site site{.machine = slow_gpu(), .fabric = &fabric, .kind = DeviceKind::cuda};
  Placer placer(fabric);
  for (const std::string layout :
       {"pipeline=4 schedule=1f1b", "pipeline=4 schedule=zb-h1", "pipeline=2 schedule=zb-v data=2 zero=1",
        "pipeline=4 schedule=planned", "pipeline=2 schedule=planned virtual_stages=2 data=2",
        "pipeline=2 schedule=interleaved virtual_stages=2 tensor=2", "pipeline=1 data=4 zero=2"}) {
    std::vector<std::string> keys = {"train.global_batch=160",    "train.micro_batch=1",    "parallel.tensor=1",
                                     "parallel.virtual_stages=1", "parallel.schedule=1f1b", "parallel.zero=0",
                                     "parallel.recompute=none",   "parallel.data=1"};
    std::istringstream words(layout);
    for (std::string word; words >> word;) keys.push_back("parallel." + word);
    const Config config = parse_config(small, keys);
    const double whole = evaluate(config, parallel::Decision{}, vocab, 4, site, placer).step_seconds;
    // The passes of a shorter step are listed by themselves, and may come out a little differently.
    const double tolerance = config.parallel.schedule == ScheduleKind::planned ? 0.01 : 0.005;
    EXPECT_NEAR(evaluate_shortened(config, parallel::Decision{}, vocab, 4, site, placer).step_seconds / whole, 1, tolerance)
        << layout;
  }
}

TEST(Planner, EveryLayoutIsAccountedFor) {
  const Config config = parse_config(small);
  topology::Fabric fabric = fixture("nvswitch8.xml");
  const Site site{.machine = slow_gpu(), .fabric = &fabric, .kind = DeviceKind::cuda};
  const PlannedJob job = plan_job(config, parallel::Decision{}, vocab, 8, site, {.top = 100});
  std::set<std::string> layouts = {job.best.candidate.layout()};
  for (const Evaluation& e : job.alternatives) layouts.insert(e.candidate.layout());
  for (const Rejected& r : job.rejected) {
    EXPECT_TRUE(layouts.insert(r.candidate.layout()).second) << r.candidate.layout() << " twice";
    EXPECT_FALSE(r.reason.empty());
  }
  EXPECT_EQ(layouts.size(), 10U) << "ways to write 8 as a product of three numbers";
  EXPECT_FALSE(job.what_if.empty());
  EXPECT_TRUE(keys_left_to_planner(job.config).empty());
}

TEST(Planner, SaysWhatAForwardAheadWouldGain) {
  topology::Fabric fabric = fixture("nvswitch8.xml");
  const Site site{.machine = slow_gpu(), .fabric = &fabric, .kind = DeviceKind::cuda};
  const auto says = [&](std::vector<std::string> keys) {
    for (const char* key : {"parallel.tensor=2", "parallel.data=1", "parallel.zero=0", "parallel.recompute=none"})
      keys.emplace_back(key);
    for (const std::string& sentence : plan_job(parse_config(small, keys), parallel::Decision{}, vocab, 2, site).what_if) {
      if (sentence.starts_with("with comm.braid=ahead a step would take ")) return true;
    }
    return false;
  };
  EXPECT_TRUE(says({"parallel.pipeline=1", "train.micro_batch=4"}));
  EXPECT_FALSE(says({"parallel.pipeline=1", "train.micro_batch=4", "comm.braid=passes"})) << "it was chosen";
  EXPECT_FALSE(says({"parallel.pipeline=1", "train.micro_batch=4", "comm.braid=ahead"}));
  EXPECT_FALSE(says({"parallel.pipeline=1", "train.micro_batch=4", "comm.overlap=false"})) << "nothing is hidden";
}

// A configuration that leaves nothing open has its stages cut by FLOPs, which make a head cheaper than it is in seconds.
TEST(Planner, SaysWhatStagesCutBySecondsWouldGain) {
  topology::Fabric fabric = fixture("nvswitch8.xml");
  const Machine machine{.profile = topology::nominal_profile("h200"), .calibration = {}};
  const Site site{.machine = machine, .fabric = &fabric, .kind = DeviceKind::cuda};
  const auto plan = [&](const std::vector<std::string>& keys) {
    const Config config = parse_config(R"(
model: {preset: gpt2-124m}
data: {tokenizer: random, sequence_length: 1024}
train: {steps: 1, global_batch: 32, micro_batch: 4}
parallel: {data: 1, pipeline: 2, schedule: 1f1b}
)",
                                       keys);
    return plan_job(config, parallel::Decision{}, config.model.vocab, 2, site);
  };
  const auto said = [](const PlannedJob& job) {
    const auto sentence =
        std::ranges::find_if(job.what_if, [](const std::string& s) { return s.starts_with("with parallel.stages=["); });
    return sentence == job.what_if.end() ? std::string() : *sentence;
  };
  const PlannedJob job = plan({});
  const std::string sentence = said(job);
  ASSERT_FALSE(sentence.empty());
  const std::size_t end = sentence.find(']') + 1;
  const std::string stages = sentence.substr(std::string("with ").size(), end - std::string("with ").size());
  const PlannedJob other = plan({stages});
  EXPECT_LT(other.best.step_seconds, 0.95 * job.best.step_seconds);
  EXPECT_EQ(sentence.substr(end), fmt::format(" a step would take {:.1f} ms instead of {:.1f}", 1e3 * other.best.step_seconds,
                                              1e3 * job.best.step_seconds));
  EXPECT_EQ(said(other), "") << "it was chosen";
  EXPECT_EQ(said(plan({"parallel.zero=auto"})), "") << "stages are cut by seconds where something is left open";
}

TEST(Planner, TheSameQuestionHasTheSameAnswer) {
  const Config config = parse_config(small);
  std::string first;
  for (int n = 0; n < 2; ++n) {
    topology::Fabric fabric = fixture("dgx1v.txt");
    const Machine machine = slow_gpu();
    const Site site{.machine = machine, .fabric = &fabric, .kind = DeviceKind::cuda};
    const std::string text =
        to_json(plan_job(config, parallel::Decision{}, vocab, 8, site), machine, {"m", "t", {}, ""}).dump();
    if (n == 0) first = text;
    EXPECT_EQ(text, first);
  }
}

TEST(Planner, TheAnswerDoesNotDependOnTheNumberOfThreads) {
  const Config config = parse_config(small);
  std::string first;
  for (const int threads : {1, 2, 3}) {
    topology::Fabric fabric = fixture("dgx1v.txt");
    const Machine machine = slow_gpu();
    const PlannedJob job =
        plan_job(config, parallel::Decision{}, vocab, 8, {.machine = machine, .fabric = &fabric, .kind = DeviceKind::cuda},
                 {.top = 100, .what_if = false, .threads = threads});
    const std::string text = to_json(job, machine, {"m", "t", {}, ""}).dump();
    if (threads == 1) first = text;
    EXPECT_EQ(text, first) << threads;
  }
}

TEST(Planner, WhatItLookedAtFirstMayAllBeTooLarge) {
  const Config config = parse_config(small, {"parallel.recompute=none"});
  topology::Fabric fabric = fixture("nvswitch8.xml");
  const auto plan = [&](double gib) {
    const Site site{.machine = slow_gpu(gib), .fabric = &fabric, .kind = DeviceKind::cuda};
    return plan_job(config, parallel::Decision{}, vocab, 4, site, {.most_looked_at = 1, .what_if = false});
  };
  const PlannedJob roomy = plan(16);
  ASSERT_EQ(roomy.looked_at, 1);
  const double tight = 0.995 * roomy.best.most_bytes() / gib;
  const PlannedJob pressed = plan(tight);
  EXPECT_EQ(pressed.looked_at, 2);
  EXPECT_FALSE(pressed.best.candidate == roomy.best.candidate);
  EXPECT_LE(pressed.best.most_bytes(), tight * gib);
}

TEST(Planner, CountsTheMemoryOfEveryCommunicator) {
  Machine machine = slow_gpu();
  machine.calibration.emplace();
  machine.calibration->context_bytes = 1000;
  machine.calibration->collectives_bytes = 100;
  machine.calibration->communicators = {{2, 1}, {4, 10}};
  const auto of = [&](const parallel::Layout& layout, CollectiveWay exchanges = CollectiveWay::library,
                      CollectiveWay reductions = CollectiveWay::library) {
    Config config = parse_config(small);
    config.train.micro_batch = 1;
    config.parallel = ParallelConfig{};
    config.comm.exchanges = exchanges, config.comm.reductions = reductions;
    return library_bytes(machine, parallel::make_rank_plan(config, parallel::Decision{}, vocab, layout, 0, DeviceKind::cuda));
  };
  EXPECT_EQ(of(parallel::make_layout(1, 1, 1)), 1000);
  EXPECT_EQ(of(parallel::make_layout(1, 2, 1)), 1101) << "gradients and scalars share one";
  EXPECT_EQ(of(parallel::make_layout(2, 1, 1)), 1101) << "tied gradients and scalars, too";
  EXPECT_EQ(of(parallel::make_layout(1, 1, 2)), 1102) << "a tensor group has its own";
  EXPECT_EQ(of(parallel::make_layout(1, 2, 2)), 1113) << "tensor twice, for activations and for gradients; data, and all four";
  EXPECT_EQ(of(parallel::make_layout(1, 1, 2), CollectiveWay::links), 1101) << "only for scalars";
  EXPECT_EQ(of(parallel::make_layout(1, 2, 2), CollectiveWay::links), 1111) << "data, and all four";
  EXPECT_EQ(of(parallel::make_layout(1, 2, 2), CollectiveWay::library, CollectiveWay::links), 1112)
      << "tensor twice, and all four";
  EXPECT_EQ(of(parallel::make_layout(1, 2, 1), CollectiveWay::library, CollectiveWay::links), 1101) << "only for scalars";
  EXPECT_EQ(of(parallel::make_layout(1, 8, 1)), 1110) << "none was measured among eight";
}

// FLOPs do not show how much faster a head's one large product is than the many small kernels of a block.
TEST(Planner, CutsStagesByWhatBlocksWereMeasuredToTake) {
  topology::Fabric fabric = fixture("two_sockets.xml");
  const auto plan = [&](double head_blocks, const std::string& stages, const std::vector<std::string>& fixed = {}) {
    Site site{.machine = slow_gpu(), .fabric = &fabric, .kind = DeviceKind::cuda};
    site.machine.calibration.emplace();
    site.machine.calibration->segments = {
        {model::SegmentKind::embedding, 1, 1, Recompute::none, true, 1e-6, 0, 1e-6},
        {model::SegmentKind::attention, 1, 1, Recompute::none, true, 0.5e-3, 0.5e-3, 0.5e-3},
        {model::SegmentKind::mlp, 1, 1, Recompute::none, true, 0.5e-3, 0.5e-3, 0.5e-3},
        {model::SegmentKind::head, 1, 1, Recompute::none, true, head_blocks * 1e-3, head_blocks * 1e-3, head_blocks * 1e-3}};
    std::vector<std::string> keys = {"parallel.pipeline=2", "parallel.schedule=1f1b",  "parallel.virtual_stages=1",
                                     "train.micro_batch=1", "parallel.recompute=none", "parallel.stages=" + stages};
    for (const std::string& key : fixed) keys.push_back(key);
    return plan_job(parse_config(small, keys), parallel::Decision{}, vocab, 2, site, {.what_if = false});
  };
  using Stages = std::vector<double>;
  for (const auto& [head_blocks, expected] : std::map<double, Stages>{{0.2, {3, 3}}, {2, {4, 2}}, {4, {5, 1}}, {9, {6, 0}}}) {
    const PlannedJob job = plan(head_blocks, "[]");
    EXPECT_EQ(job.best.candidate.stages, expected) << "a head of " << head_blocks << " segments";
    EXPECT_EQ(job.config.parallel.stages, expected);
    EXPECT_LE(job.best.step_seconds, plan(head_blocks, "[3, 3]").best.step_seconds);
  }
  EXPECT_EQ(plan(9, "[3, 3]").config.parallel.stages, Stages({3, 3})) << "the configuration has the last word";
  const auto nothing_open = {std::string("parallel.data=1"), std::string("parallel.tensor=1"), std::string("parallel.zero=0")};
  EXPECT_TRUE(plan(9, "[]", nothing_open).config.parallel.stages.empty()) << "what leaves nothing open runs as it says";
}

// On slow links, ranks sometimes wait less with the cut that balances compute less evenly.
TEST(Planner, TakesTheCutByFlopsWhereThatIsFaster) {
  topology::Fabric fabric = fixture("pcie_8.txt");
  const Site site{.machine = slow_gpu(), .fabric = &fabric, .kind = DeviceKind::cuda};
  for (const auto& [words, by_flops] : std::map<int, bool>{{4096, false}, {16384, true}}) {
    const Config config = parse_config(small, {"model.layers=12", "model.vocab=" + std::to_string(words), "parallel.pipeline=4",
                                               "parallel.data=2", "parallel.schedule=1f1b", "train.micro_batch=1"});
    const PlannedJob job = plan_job(config, parallel::Decision{}, words, 8, site, {.what_if = false});
    EXPECT_EQ(job.config.parallel.stages.empty(), by_flops) << words;
    Placer placer(fabric);
    Candidate other = job.best.candidate;
    other.stages.clear();
    EXPECT_LE(job.best.step_seconds,
              1.001 * evaluate(with(config, other), parallel::Decision{}, words, 8, site, placer).step_seconds)
        << words;
  }
}

// A candidate that it estimates to be far too large is never planned.
TEST(Planner, DoesNotEstimateFarMoreBytesThanArePlanned) {
  topology::Fabric fabric = fixture("nvswitch8.xml");
  const Site site{.machine = {.profile = topology::nominal_profile("h200"), .calibration = {}}, .fabric = &fabric};
  for (const char* model : {"gpt2-124m", "llama3-1b", "qwen2.5-1.5b"}) {
    for (const char* layout : {"parallel.pipeline=1", "parallel.tensor=2", "parallel.pipeline=2 parallel.schedule=1f1b",
                               "parallel.pipeline=2 parallel.schedule=zb-v", "parallel.data=2 parallel.zero=2"}) {
      for (const char* micro_batch : {"1", "4"}) {
        for (const char* recompute : {"none", "selective", "full"}) {
          std::vector<std::string> keys = {std::string("model.preset=") + model,
                                           std::string("train.micro_batch=") + micro_batch,
                                           std::string("parallel.recompute=") + recompute,
                                           "model.vocab=50304",
                                           "parallel.data=1",
                                           "parallel.zero=0"};
          std::istringstream words(layout);
          for (std::string key; words >> key;) keys.push_back(key);
          const Config config =
              parse_config("data: {tokenizer: random, sequence_length: 512}\ntrain: {steps: 1, global_batch: 32}", keys);
          const ParallelConfig& p = config.parallel;
          const int ranks = static_cast<int>(product(p.size));
          const Candidate c = enumerate(config, ranks).candidates.at(0);
          Placer placer(fabric);
          const Evaluation planned = evaluate(with(config, c), parallel::Decision{}, 50304, ranks, site, placer);
          const double estimated =
              Estimator(config, parallel::Decision{}, 50304, site.kind, site.machine).estimate(c, {}).bytes;
          const double share = estimated / (planned.most_bytes() - planned.library_bytes);
          EXPECT_LT(share, 1.03) << model << " " << layout << " micro-batch " << micro_batch << " recompute " << recompute;
          EXPECT_GT(share, 0.65) << model << " " << layout << " micro-batch " << micro_batch << " recompute " << recompute;
        }
      }
    }
  }
}

TEST(Planner, KeepsThePlansOfItsChoice) {
  const Config config = parse_config(small);
  topology::Fabric fabric = fixture("two_sockets.xml");
  const Site site{.machine = slow_gpu(), .fabric = &fabric, .kind = DeviceKind::cuda};
  const PlannedJob job = plan_job(config, parallel::Decision{}, vocab, 4, site, {.what_if = false});
  ASSERT_EQ(job.stages.size(), static_cast<std::size_t>(job.best.candidate.size[Axis::pipeline]));
  EXPECT_EQ(job.stages[0].global_batch, config.train.global_batch);
  const std::vector<std::size_t> planned = parallel::planned_bytes(job.stages);
  EXPECT_EQ(job.best.rank_bytes, std::vector<double>(planned.begin(), planned.end()));
  for (std::size_t p = 0; p < job.stages.size(); ++p) {
    EXPECT_LE(static_cast<double>(job.stages[p].memory.total_bytes()), job.best.peak_bytes[p]);
  }
}

TEST(Planner, WithLessMemoryItSharesOrRecomputes) {
  const Config config = parse_config(small, {"parallel.tensor=1", "parallel.pipeline=1", "train.micro_batch=8"});
  topology::Fabric fabric = fixture("nvswitch8.xml");
  const auto plan = [&](double gib) {
    return plan_job(config, parallel::Decision{}, vocab, 2,
                    {.machine = slow_gpu(gib), .fabric = &fabric, .kind = DeviceKind::cuda});
  };
  const PlannedJob roomy = plan(16);
  EXPECT_EQ(roomy.best.candidate.recompute, Recompute::none);
  // The workspace cannot be reduced.
  double fixed = 0;
  for (const auto& [kind, bytes] : roomy.best.bytes_by_kind) fixed += kind == "workspace" ? bytes : 0;
  const double tight = (fixed + 0.9 * (roomy.best.most_bytes() - fixed)) / (1024.0 * 1024 * 1024);
  const PlannedJob pressed = plan(tight);
  EXPECT_TRUE(pressed.best.candidate.recompute != Recompute::none || pressed.best.candidate.zero > roomy.best.candidate.zero);
  EXPECT_LE(pressed.best.most_bytes(), tight * 1024 * 1024 * 1024);
  EXPECT_GE(pressed.best.step_seconds, roomy.best.step_seconds);
}

std::string refusal(const Config& config, int ranks, double gib) {
  topology::Fabric fabric = fixture("nvswitch8.xml");
  return error_of<ConfigError>([&] {
    return plan_job(config, parallel::Decision{}, vocab, ranks,
                    {.machine = slow_gpu(gib), .fabric = &fabric, .kind = DeviceKind::cuda});
  });
}

TEST(Planner, WhatDoesNotFitIsRefusedWithWhatWould) {
  const std::vector<std::string> fixed = {"parallel.tensor=1", "parallel.pipeline=1", "train.micro_batch=8", "parallel.zero=0",
                                          "parallel.recompute=none"};
  EXPECT_THAT(refusal(parse_config(small, fixed), 2, 0.27), AllOf(HasSubstr("does not fit"), HasSubstr("would (about")));
  EXPECT_THAT(refusal(parse_config(small, fixed), 2, 0.001), HasSubstr("It needs more GPUs"));
  EXPECT_THAT(refusal(parse_config(small), 9, 16), HasSubstr("the topology has only 8 GPUs"));
}

// The same words as in training: the key, its value, and the remedy.
TEST(Planner, AxesThatNoLayoutHasAreNamedAsTrainingNamesThem) {
  const auto of = [](int ranks, const std::vector<std::string>& axes) {
    const Config config = parse_config(small, axes);
    const std::string why = refusal(config, ranks, 16);
    if (!config.parallel.size[Axis::tensor].is_auto() && !config.parallel.size[Axis::pipeline].is_auto()) {
      EXPECT_EQ(why, error_of<ConfigError>([&] { parallel::resolve_layout(config.parallel, ranks); }));
    }
    return why;
  };
  EXPECT_THAT(of(8, {"parallel.data=2", "parallel.tensor=1", "parallel.pipeline=1"}),
              AllOf(HasSubstr("parallel.data=2: data 2 × tensor 1 × pipeline 1 must multiply to the number of ranks, 8"),
                    HasSubstr("launch.ranks (or --gpus) to 2"), HasSubstr("parallel.data to 8 or auto")));
  EXPECT_THAT(of(8, {"parallel.pipeline=3"}),
              AllOf(HasSubstr("parallel.pipeline=3: pipeline 3 must divide the number of ranks, 8"),
                    HasSubstr("a multiple of 3"), HasSubstr("a divisor of 8 or auto")));
  EXPECT_THAT(of(8, {"parallel.tensor=2", "parallel.pipeline=8"}), HasSubstr("parallel.tensor=2: tensor 2 × pipeline 8"));
  EXPECT_EQ(parallel::axes_problem(parse_config(small, {"parallel.tensor=2"}).parallel, 8), std::nullopt);
}

// A memory just large enough for the plan leaves nothing for the driver.
TEST(Planner, WhatFillsTheMemoryDoesNotFit) {
  Evaluation e;
  e.peak_bytes = {31.6 * gib};
  e.candidate = {.size = {{Axis::pipeline, 1}, {Axis::data, 4}, {Axis::tensor, 1}}, .micro_batch = 8};
  e.bytes_by_kind = {{"activations", 20 * gib}, {"optimizer", 10 * gib}, {"gradients", 1 * gib}, {"batch", 1}};
  EXPECT_EQ(memory_problem(e, slow_gpu(31.6)), "");
  Machine machine = slow_gpu();
  machine.profile.memory_bytes = 31.7 * gib;
  EXPECT_EQ(
      memory_problem(e, machine),
      "does not fit: needs 31.6 GiB per GPU, where 31.1 GiB of 31.7 GiB can be used (2 % stay free for the driver and for "
      "fragments); the largest items are activations 20.0 GiB, optimizer 10.0 GiB, gradients 1.0 GiB; it takes a "
      "train.micro_batch below 8, parallel.zero=1, parallel.zero=2");
}

TEST(Planner, APlanSaysWhatTheWholeRunTakes) {
  const Config config = parse_config(small, {"train.steps=1000"});
  topology::Fabric fabric = fixture("nvswitch8.xml");
  const Machine machine = slow_gpu();
  PlannedJob job =
      plan_job(config, parallel::Decision{}, vocab, 4, {.machine = machine, .fabric = &fabric, .kind = DeviceKind::cuda});
  const Throughput speed = throughput_of(job, machine);
  const double step = job.best.step_seconds;
  EXPECT_DOUBLE_EQ(speed.tokens_per_second, 16 * 64 / step);
  EXPECT_DOUBLE_EQ(speed.run_seconds, 1000 * step);
  EXPECT_DOUBLE_EQ(speed.device_hours, 4000 * step / 3600);
  const double flops = 6 * (6 * 12 * 256 * 256 + 1024 * 256) + 12 * 256 * 6 * 32;
  EXPECT_DOUBLE_EQ(speed.flops_per_device, flops * 16 * 64 / step / 4);
  EXPECT_DOUBLE_EQ(speed.mfu.value(), speed.flops_per_device / 989.4e12);
  job.config.log.peak_tflops = 1;
  EXPECT_DOUBLE_EQ(throughput_of(job, machine).mfu.value(), speed.flops_per_device / 1e12);
}

TEST(Planner, APlanForCpusSpeaksOfNoGpu) {
  const Config config = parse_config(small);
  topology::Fabric fabric(topology::assume_topology(DeviceKind::host, "cpu", 4).graph);
  const Machine machine{.profile = topology::nominal_profile("cpu"), .calibration = {}};
  const Site site{.machine = machine, .fabric = &fabric, .kind = DeviceKind::host};
  const PlannedJob job = plan_job(config, parallel::Decision{}, vocab, 4, site);
  EXPECT_THAT(text_of(job, machine, {machine.origin(), "assumed", {}, ""}),
              AllOf(Not(HasSubstr("GPU")), HasSubstr("fullest CPU rank"), HasSubstr(" MiB"), Not(HasSubstr("0.0 GiB"))));
  Machine tiny = machine;
  tiny.profile.memory_bytes = 1e6;
  EXPECT_THAT(error_of<ConfigError>([&] {
                plan_job(config, parallel::Decision{}, vocab, 4, {.machine = tiny, .fabric = &fabric, .kind = site.kind});
              }),
              AllOf(Not(HasSubstr("GPU")), HasSubstr("per CPU rank"), HasSubstr("It needs more CPU ranks")));
}

// Sixteen ranks of one axis need two hosts, eight do not.
void expect_links_within_a_host(const std::string& key, const std::string& axis, Axis along) {
  topology::Fabric two_hosts(topology::assume_topology(DeviceKind::cuda, "h200", 16).graph);
  const Site site{.machine = slow_gpu(), .fabric = &two_hosts, .kind = DeviceKind::cuda};
  const auto plan = [&](const std::string& way, const std::string& ranks) {
    const Config config = parse_config(small, {"model.heads=16", "parallel." + axis + "=" + ranks, key + "=" + way});
    return plan_job(config, parallel::Decision{}, vocab, 16, site, {.most_looked_at = 8, .what_if = false})
        .best.candidate.size[along];
  };
  EXPECT_EQ(plan("library", "16"), 16);
  EXPECT_EQ(plan("links", "8"), 8);
  EXPECT_THAT(error_of<ConfigError>([&] { plan("links", "16"); }),
              AllOf(HasSubstr(key + "=links: " + axis + "-parallel ranks 0 and"), HasSubstr("on two hosts"),
                    HasSubstr(key + "=library")));
}

TEST(Planner, ExchangesByLinksStayWithinAHost) { expect_links_within_a_host("comm.exchanges", "tensor", Axis::tensor); }
TEST(Planner, ReductionsByLinksStayWithinAHost) { expect_links_within_a_host("comm.reductions", "data", Axis::data); }

TEST(Planner, ExchangesByLinksAreOfAtMostAsManyRanksAsAKernelAddsUp) {
  topology::Fabric fabric(topology::assume_topology(DeviceKind::cuda, "h200", 80).graph);
  const Site site{.machine = slow_gpu(), .fabric = &fabric, .kind = DeviceKind::cuda};
  const Config config = parse_config(
      small, {"model.hidden=640", "model.heads=80", "data.sequence_length=80", "parallel.tensor=80", "comm.exchanges=links"});
  EXPECT_THAT(error_of<ConfigError>(
                  [&] { plan_job(config, parallel::Decision{}, vocab, 80, site, {.most_looked_at = 8, .what_if = false}); }),
              AllOf(HasSubstr("comm.exchanges"), HasSubstr("needs a parallel.tensor of at most 72, here it is 80")));
}

TEST(Planner, FasterLinksNeverMakeItsAnswerSlower) {
  const Config config = parse_config(small, {"parallel.recompute=none", "parallel.zero=0"});
  double before = std::numeric_limits<double>::infinity();
  for (const double factor : {0.25, 1.0, 4.0}) {
    topology::Graph graph = fixture("two_sockets.xml").graph();
    for (topology::Edge& edge : graph.edges) edge.gb_per_s *= factor;
    topology::Fabric fabric(graph);
    const PlannedJob job = plan_job(config, parallel::Decision{}, vocab, 4,
                                    {.machine = slow_gpu(), .fabric = &fabric, .kind = DeviceKind::cuda}, {.what_if = false});
    EXPECT_LE(job.best.step_seconds, before * (1 + 1e-9));
    before = job.best.step_seconds;
  }
}

class Document : public testing::Test {
 protected:
  Document() : config(parse_config(small, {"model.kv_heads=2"})), fabric(fixture("two_sockets.xml")), machine(slow_gpu()) {
    job = plan_job(config, parallel::Decision{}, vocab, 4, {.machine = machine, .fabric = &fabric, .kind = DeviceKind::cuda});
    json = nlohmann::json::parse(
        to_json(job, machine, {machine.origin(), "two_sockets.xml", {}, "ranks 0-3 on NUMA node 0"}).dump());
  }
  std::string refused(const std::function<void(nlohmann::json&)>& spoil, Config other) {
    nlohmann::json spoilt = json;
    spoil(spoilt);
    return error_of<ConfigError>([&] { return apply_choice(std::move(other), spoilt, "plan.json"); });
  }
  std::string refused(const std::function<void(nlohmann::json&)>& spoil) { return refused(spoil, config); }

  Config config;
  topology::Fabric fabric;
  Machine machine;
  PlannedJob job;
  nlohmann::json json;
};

TEST_F(Document, HasWhatTheDesignPromises) {
  for (const char* key : {"step_ms", "bubble_fraction", "exposed_comm_ms", "peak_bytes"})
    EXPECT_TRUE(json["predicted"].contains(key)) << key;
  EXPECT_EQ(json["predicted"]["peak_bytes"].size(), 4U);
  for (const char* axis : {"tensor", "pipeline", "data"}) EXPECT_TRUE(json["links"].contains(axis)) << axis;
  EXPECT_GE(json["alternatives"].size(), 3U);
  EXPECT_GE(json["explanation"].size(), 5U);
  EXPECT_THAT(text_of(job, machine, {machine.origin(), "two_sockets.xml", {}, "ranks 0-3 on NUMA node 0"}),
              AllOf(HasSubstr("next best"), HasSubstr("slowest link"), HasSubstr("CPU side: ranks 0-3 on NUMA node 0\n"),
                    HasSubstr("not chosen")));
  EXPECT_EQ(json["cpu_binding"], "ranks 0-3 on NUMA node 0");
}

TEST_F(Document, ItsChoiceRuns) {
  const auto [chosen, decision] = apply_choice(config, json, "plan.json");
  EXPECT_EQ(chosen.parallel.size[Axis::data], job.best.candidate.size[Axis::data]);
  EXPECT_EQ(chosen.train.micro_batch, job.best.candidate.micro_batch);
  EXPECT_EQ(chosen.parallel.schedule, job.best.candidate.schedule);
  EXPECT_EQ(chosen.placement.strategy, PlacementStrategy::given);
  EXPECT_EQ(chosen.placement.devices.size(), 4U);
  EXPECT_EQ(chosen.launch.ranks, 4);
  EXPECT_EQ(chosen.launch.device, "cuda") << "also where there are none";
  EXPECT_TRUE(keys_left_to_planner(chosen).empty());
  // Planning again gives the same plan.
  Placer placer(fabric);
  const Site site{.machine = machine, .fabric = &fabric, .kind = DeviceKind::cuda};
  EXPECT_EQ(evaluate(chosen, decision, vocab, 4, site, placer).step_seconds, job.best.step_seconds);
}

TEST_F(Document, OfAnotherJobOrSpoiltIsRefused) {
  EXPECT_EQ(refused([](auto&) {}), nothing_thrown);
  EXPECT_THAT(refused([](auto&) {}, parse_config(small, {"model.layers=12"})),
              HasSubstr("was made for another job: model.layers is 12 now, and was 6; model.kv_heads is \"auto\" now, and was "
                        "2; plan again"));
  EXPECT_THAT(refused([](auto& j) { j = 1; }), HasSubstr("plan.json: it is 1: must be an object; plan again"));
  EXPECT_THAT(refused([](auto& j) { j["choice"].erase("gpus"); }), HasSubstr("'choice.gpus' is missing"));
  EXPECT_THAT(refused([](auto& j) { j["choice"]["gpus"] = "all"; }), HasSubstr("must be a list"));
  EXPECT_THAT(refused([](auto& j) { j["choice"]["device"] = "h100"; }),
              HasSubstr("'choice.device' is \"h100\": must be cuda or cpu"));
  EXPECT_THAT(refused([](auto&) {}, parse_config(small, {"model.kv_heads=2", "launch.device=cpu"})),
              HasSubstr("launch.device=cpu: is cuda in plan.json; to run that plan set it to auto, or else plan again"));
  EXPECT_THAT(refused([](auto& j) { j["choice"]["layout"]["data"] = 1.5; }),
              HasSubstr("'choice.layout.data' is 1.5: must be a whole number"));
  EXPECT_THAT(refused([](auto& j) { j["choice"]["layout"]["tensor"] = 3; }), HasSubstr("parallel.tensor = 3"));
  EXPECT_THAT(refused([](auto& j) { j["choice"]["schedule"] = "auto"; }),
              HasSubstr("'choice.schedule' is \"auto\": must not be left open"));
}

TEST(AssumedTopology, EveryGpuHasANicOfItsOwn) {
  topology::Fabric fabric(topology::assume_topology(DeviceKind::cuda, "h100", 16).graph);
  std::set<int> crossed;
  std::size_t channels = 0;
  for (int gpu = 0; gpu < 8; ++gpu) {
    const topology::Way& way = fabric.way(gpu, gpu + 8);
    EXPECT_NEAR(way.gb_per_s, 50, 2) << gpu;
    channels += way.channels.size();
    crossed.insert(way.channels.begin(), way.channels.end());
  }
  EXPECT_EQ(crossed.size(), channels) << "no two of them share anything";
  EXPECT_EQ(fabric.way(0, 7).link, "NVS18");
}

TEST(AssumedTopology, IsSaidAndHasAsManyGpusAsAsked) {
  for (const std::string& device : topology::nominal_profile_names()) {
    const bool cpu = device == "CPU";
    for (const int ranks : {1, 2, 8, 24}) {
      const topology::AssumedTopology assumed =
          topology::assume_topology(cpu ? DeviceKind::host : DeviceKind::cuda, device, ranks);
      topology::Fabric fabric(assumed.graph);
      EXPECT_EQ(fabric.gpus(), ranks) << device;
      for (int to = 1; to < ranks; ++to) EXPECT_GT(fabric.way(0, to).gb_per_s, 0) << device;
      EXPECT_FALSE(assumed.words.empty());
    }
  }
}

}  // namespace
}  // namespace plait::plan
