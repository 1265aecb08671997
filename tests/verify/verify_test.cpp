// Whole verifications: what passes, what fails and how, and how it is reported.
#include "verify/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <pugixml.hpp>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/terminal.h"
#include "launch/launch_fixtures.h"
#include "launch/settled_job.h"
#include "parallel/program/program_waits.h"
#include "verify/report.h"
#include "verify/verify_cases.h"

namespace plait::verify::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Everything is removed at the end, whatever happened.
class Verify : public testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(std::filesystem::is_empty(temporary_.path())) << "left something in TMPDIR"; }
  plait::test::TemporaryDirectory temporary_;
  launch::test::EnvironmentVariable variable_{"TMPDIR", temporary_.path()};
};

// Where ranks of two-way data parallelism, and no others, break.
RankParts broken_where_data_is_2(const std::function<void(parallel::RankPlan&)>& edit) {
  return edited_plan([edit](parallel::RankPlan& plan) {
    if (plan.layout.size(Axis::data) == 2) edit(plan);
  });
}

VerifyReport mixed_report() {
  return verify(verify_request({"data=1", "data=2", "tensor=4"},
                               broken_where_data_is_2([](parallel::RankPlan& plan) { plan.global_batch *= 2; }),
                               {"verify.variants=[\"narrow: model.kv_heads=2\"]", "verify.steps=1"}));
}

struct ReportAndTable {
  VerifyReport report;
  std::string text;  // for people
};

ReportAndTable table_of(int width, const VerifyRequest& request) {
  ReportAndTable result;
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* out = ::open_memstream(&text, &size);
  {
    VerifyTable table(TerminalOptions{.out = out, .width = width});
    result.report = verify(request, table.events());
    table.summarize(result.report);
  }
  std::fclose(out);
  result.text.assign(text, size);
  std::free(text);
  return result;
}

TEST_F(Verify, EveryPrecisionAgrees) {
  for (const char* precision : {"fp32", "bf16", "fp64"}) {
    const VerifyReport report =
        verify(verify_request({"tensor=2", "pipeline=2 data=2 zero=2", "pipeline=2 tensor=2 schedule=zb-v"}, {},
                              {std::string("precision.compute=") + precision}));
    EXPECT_EQ(report.failed(), 0) << precision;
    for (const LayoutResult& result : report.layouts) {
      for (const ErrorKind kind : error_kinds) EXPECT_FALSE(result.findings.of(kind).where.empty()) << to_string(kind);
      EXPECT_GT(result.findings.of(ErrorKind::gradient).largest, 0) << "compared with itself?";
    }
  }
}

// Tokens that see only themselves: the gradients of query and key gains are rounding errors and nothing else.
TEST_F(Verify, GainsWithoutAGradientAgree) {
  for (const char* precision : {"fp32", "fp64"}) {
    const VerifyReport report =
        verify(verify_request({"tensor=2", "pipeline=2 tensor=2", "tensor=4 recompute=full"}, {},
                              {"model.qk_norm=true", "model.window=1", std::string("precision.compute=") + precision}));
    EXPECT_EQ(report.failed(), 0) << precision;
  }
}

// Moments in bf16 are rounded alike too, and what that leaves open makes no bound weak.
TEST_F(Verify, Bf16MomentsAgree) {
  const std::vector<std::string> layouts = {"data=2",   "data=2 zero=1", "data=2 zero=2",
                                            "tensor=2", "pipeline=2",    "pipeline=2 tensor=2 data=2 zero=1 schedule=zb-v"};
  for (const char* precision : {"fp32", "bf16"}) {
    const VerifyReport report = verify(verify_request(
        layouts, {}, {"precision.moments=bf16", "verify.steps=4", std::string("precision.compute=") + precision}));
    EXPECT_EQ(report.failed(), 0) << precision;
    EXPECT_EQ(report.layouts.size(), layouts.size());
    for (const WeakBound& weak : report.models.front().weak) ADD_FAILURE() << precision << ": " << weak.text();
    for (const LayoutResult& result : report.layouts)
      EXPECT_GT(result.findings.of(ErrorKind::parameter).largest, 0) << "compared with itself?";
  }
}

// Tensor-parallel ranks round their parts of operands with one scale: all layouts round alike.
TEST_F(Verify, Fp8LayoutsRoundAsTheSerialRunDoes) {
  const std::vector<std::string> fp64 = {"precision.matmul=fp8", "precision.compute=fp64"};
  const std::vector<std::string> layouts = {"data=2 zero=2", "tensor=2", "tensor=2 sequence_parallel=false",
                                            "tensor=2 data=2 zero=1 recompute=full",
                                            "pipeline=2 tensor=2 schedule=zb-v recompute=selective"};
  for (const char* model : {"model.mlp=gelu",
                            "model.mlp=swiglu model.norm=rms_norm model.position=rope model.kv_heads=2 "
                            "model.bias=false model.tie_embeddings=false model.qk_norm=true"}) {
    std::vector<std::string> set = fp64;
    std::istringstream keys(model);
    for (std::string key; keys >> key;) set.push_back(key);
    const VerifyReport report = verify(verify_request(layouts, {}, set));
    EXPECT_EQ(report.failed(), 0) << model;
    EXPECT_EQ(report.layouts.size(), layouts.size());
    EXPECT_TRUE(report.models.front().weak.empty());
    for (const LayoutResult& result : report.layouts) EXPECT_LT(result.findings.of(ErrorKind::gradient).largest, 1e-12);
  }
  // Halves of micro-batches have scales of their own, as the serial run's micro-batches have that are as small.
  std::vector<std::string> halves = fp64;
  halves.insert(halves.end(), {"comm.braid=halves", "train.micro_batch=2"});
  EXPECT_EQ(verify(verify_request({"pipeline=2 tensor=2", "data=2"}, {}, halves)).failed(), 0);
  // In fp32 an operand here and there is rounded the other way, and the bounds say so.
  const VerifyReport single = verify(verify_request({"data=2"}, {}, {"precision.matmul=fp8", "precision.compute=fp32"}));
  EXPECT_EQ(single.failed(), 0);
  EXPECT_FALSE(single.models.front().weak.empty());
}

// Replicas and micro-batches have different numbers of targets that count, or none.
// All collectives go by links, each stream is issued by a thread of its own, and order within a step is the streams' alone.
TEST_F(Verify, LayoutsAgreeWhereRanksShareADevice) {
  const std::vector<std::string> layouts = {"data=2",
                                            "data=4 zero=2",
                                            "tensor=2 sequence_parallel=false",
                                            "tensor=4",
                                            "pipeline=4 schedule=zb-v",
                                            "pipeline=2 schedule=interleaved virtual_stages=2",
                                            "pipeline=2 data=2 tensor=2 schedule=1f1b zero=2",
                                            "pipeline=2 data=2 schedule=zb-h1 zero=1"};
  for (const char* shared : {"launch.ranks_per_device=4", "launch.ranks_per_device=auto"}) {
    const VerifyReport report = verify(verify_request(layouts, {}, {shared}));
    EXPECT_EQ(report.failed(), 0) << shared;
    EXPECT_EQ(report.layouts.size(), layouts.size());
  }
}

TEST_F(Verify, LayoutsAgreeWhereTargetsDoNotCount) {
  const std::vector<std::string> layouts = {"data=4", "data=2 zero=1", "pipeline=2 data=2 zero=2", "tensor=2 data=2",
                                            "pipeline=2 schedule=zb-v"};
  for (const char* precision : {"fp32", "bf16", "fp64"}) {
    const VerifyReport report = verify(verify_request(layouts, masked(), {std::string("precision.compute=") + precision}));
    EXPECT_EQ(report.failed(), 0) << precision;
    for (const StepFigures& step : report.models.front().steps) EXPECT_EQ(step.loss_tokens, 26);
    EXPECT_TRUE(report.models.front().weak.empty()) << precision;
  }
  const VerifyReport halves =
      verify(verify_request({"pipeline=2 tensor=2"}, masked(), {"comm.braid=halves", "train.micro_batch=2"}));
  EXPECT_EQ(halves.failed(), 0);
  EXPECT_EQ(halves.models.front().steps.front().loss_tokens, 26);
}

// Such a step moves nothing; the gradients that are compared are those of the first one that has any.
TEST_F(Verify, LayoutsAgreeWhereNoTargetOfAStepCounts) {
  const std::vector<std::string> layouts = {"data=2 zero=1", "data=2 zero=2", "pipeline=2 schedule=zb-v", "tensor=2"};
  for (const std::set<std::int64_t>& without : {std::set<std::int64_t>{1}, {2}, {3}, {1, 3}}) {
    for (const char* precision : {"precision.compute=fp32", "precision.compute=bf16", "precision.moments=bf16"}) {
      const std::string what = std::string(precision) + " without step " + std::to_string(*without.begin());
      const VerifyReport report =
          verify(verify_request(layouts, masked({}, without), {precision, "verify.steps=3", "train.steps=3"}));
      EXPECT_EQ(report.failed(), 0) << what;
      const std::vector<StepFigures>& steps = report.models.front().steps;
      ASSERT_EQ(steps.size(), 3u) << what;
      for (std::int64_t step = 1; step <= 3; ++step) {
        const StepFigures& figures = steps[static_cast<std::size_t>(step - 1)];
        EXPECT_EQ(figures.loss_tokens, without.contains(step) ? 0 : 26) << what;
        EXPECT_EQ(figures.loss > 0 && figures.norm > 0, !without.contains(step)) << what;
      }
      EXPECT_TRUE(report.models.front().weak.empty()) << what;
      for (const LayoutResult& result : report.layouts)
        EXPECT_GT(result.findings.of(ErrorKind::gradient).largest, 0) << what << ": gradients of nothing?";
    }
  }
}

TEST_F(Verify, AFaultOfGradientsShowsInTheFirstStepThatHasAny) {
  const CallFault leave_gradients_out = [](const Call& call, StreamRef) {
    return call.kind == CallKind::all_reduce && call.data.elements() > 3;  // what the step adds up beside them
  };
  const VerifyReport report = verify(verify_request({"data=2"}, masked(faulty_group("data", leave_gradients_out), {1})));
  EXPECT_EQ(report.failed(), 1);
  EXPECT_GT(report.layouts.front().findings.of(ErrorKind::gradient).of_bound, 1);
  const std::optional<Divergence>& divergence = report.layouts.front().findings.first_divergence;
  ASSERT_TRUE(divergence) << report.layouts.front().failure;
  EXPECT_THAT(divergence->text(), HasSubstr("step 2, reduced gradient of"));
}

TEST_F(Verify, NothingCanBeComparedWhereNoTargetCounts) {
  const VerifyReport report = verify(verify_request({"data=2"}, masked({}, {1, 2})));
  EXPECT_EQ(report.failed(), 1);
  EXPECT_THAT(report.layouts.front().failure, AllOf(HasSubstr("no target counts in 2 steps"),
                                                    HasSubstr("a larger train.global_batch or data.sequence_length")));
}

TEST_F(Verify, ReadsAndEncodesItsTextOnceForAllRanksAndLayouts) {
  int opened = 0;
  RankParts parts;
  parts.open_dataset = [&](const Config& config, const data::Tokenizer& tokenizer, std::int64_t vocab) {
    ++opened;
    return data::open_dataset(config, tokenizer, vocab);
  };
  EXPECT_EQ(verify(verify_request({"data=2", "tensor=2", "pipeline=2 data=2"}, parts)).failed(), 0);
  EXPECT_EQ(opened, 1);
}

// The passes of a planned schedule are those that training would be planned with here.
TEST_F(Verify, RunsWhatTrainingWouldRun) {
  std::mutex mutex;
  std::set<std::string> passes;
  RankParts parts;
  parts.make_plan = [&](const Config& config, const parallel::Decision& decision, std::int64_t vocab,
                        const launch::RankContext& rank) {
    const std::lock_guard lock(mutex);
    passes.insert(decision.passes ? decision.passes->text : "listed by FLOPs");
    return train::training_plan(config, decision, vocab, rank);
  };
  const VerifyRequest request = verify_request({"pipeline=2 schedule=planned"}, parts);
  const VerifyMatrix matrix = make_matrix(request.config, request.layouts);
  EXPECT_EQ(verify(request).failed(), 0);
  const launch::SettledJob settled = launch::settle(matrix.cases.at(0).config, parallel::Decision{});
  EXPECT_THAT(passes, testing::ElementsAre(settled.decision.passes->text));
}

TEST_F(Verify, AFailureIsOneOfTheMatrix) {
  const VerifyReport report = mixed_report();
  ASSERT_EQ(report.layouts.size(), 5u);
  EXPECT_EQ(report.failed(), 2);
  EXPECT_EQ(report.passed(), 3);
  for (const LayoutResult& result : report.layouts) {
    EXPECT_EQ(result.passed(), result.layout != "data=2");
    EXPECT_EQ(result.findings.first_divergence.has_value(), result.layout == "data=2");
  }
}

TEST_F(Verify, ARankThatThrowsFailsItsLayoutOnly) {
  const VerifyReport report =
      verify(verify_request({"data=2", "tensor=2"}, broken_where_data_is_2([](parallel::RankPlan& plan) {
                              if (plan.rank == 1) throw InternalError("rank 1 has had enough");
                            })));
  EXPECT_EQ(report.failed(), 1);
  EXPECT_THAT(report.layouts[0].failure, HasSubstr("rank 1: rank 1 has had enough"));
  EXPECT_FALSE(report.layouts[0].findings.measured());
  EXPECT_TRUE(report.layouts[1].passed());
}

TEST_F(Verify, ALayoutThatHangsEndsByTheTimeout) {
  const RankParts parts = edited_plan([](parallel::RankPlan& plan) {
    std::erase_if(plan.train.instructions,
                  [](const auto& i) { return i.kind == parallel::InstructionKind::send_activation && i.micro_batch == 3; });
    for (auto& i : plan.train.instructions) i.waits.clear();
    parallel::derive_waits(plan.train, plan.flat.buckets());
  });
  const auto start = std::chrono::steady_clock::now();
  const VerifyReport report = verify(verify_request({"pipeline=2", "data=2"}, parts, {"comm.timeout_s=1"}));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_FALSE(report.layouts[0].failure.empty());
  EXPECT_TRUE(report.layouts[1].passed());
}

TEST_F(Verify, ASerialRunThatGoesWrongFailsTheLayoutsOfItsModelOnly) {
  const auto [report, lines] =
      table_of(200, verify_request({"data=2", "tensor=2"}, {},
                                   {"verify.variants=[\"hot: verify.lr=1e30 train.clip=0\", \"narrow: model.kv_heads=2\"]",
                                    "verify.steps=4", "train.steps=4"}));
  EXPECT_EQ(report.failed(), 2);
  ASSERT_EQ(report.layouts.size(), 6u);
  ASSERT_EQ(report.models.size(), 3u);
  const std::string& failure = report.models[1].failure;
  EXPECT_THAT(failure, AllOf(HasSubstr("the serial run of model hot failed"), HasSubstr("not finite")));
  for (const LayoutResult& result : report.layouts) EXPECT_EQ(result.failure, result.model == "hot" ? failure : "");
  EXPECT_TRUE(report.models[1].steps.empty());

  const auto once = lines.find("the serial run of model hot failed");
  EXPECT_NE(once, std::string::npos) << lines;
  EXPECT_EQ(lines.find("the serial run of model hot failed", once + 1), std::string::npos) << lines;
  EXPECT_THAT(lines, HasSubstr("2 of 6 layouts FAILED"));
  const auto json = nlohmann::ordered_json::parse(to_json(report).dump());
  EXPECT_EQ(json["reference"]["models"][0]["failure"], nullptr);
  EXPECT_EQ(json["reference"]["models"][1]["failure"], failure);
  EXPECT_EQ(json["layouts"][2]["failure"], failure);
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(to_junit(report).c_str()));
  EXPECT_EQ(document.child("testsuites").attribute("tests").as_int(), 6);
  EXPECT_EQ(document.child("testsuites").attribute("errors").as_int(), 2);
}

TEST_F(Verify, ReportsAsJson) {
  const auto json = nlohmann::ordered_json::parse(to_json(mixed_report()).dump());
  EXPECT_EQ(json["passed"], 3);
  EXPECT_EQ(json["failed"], 2);
  ASSERT_EQ(json["layouts"].size(), 5u);
  const auto& first = json["layouts"][0];
  for (const char* key : {"model", "layout", "name", "schedule", "zero", "device", "max_loss_error", "max_grad_error",
                          "max_param_error", "first_divergence", "passed"}) {
    EXPECT_TRUE(first.contains(key)) << key;
  }
  EXPECT_EQ(first["first_divergence"], nullptr);
  const auto& failed = json["layouts"][1];
  EXPECT_EQ(failed["layout"]["data"], 2);
  EXPECT_EQ(failed["passed"], false);
  EXPECT_EQ(failed["first_divergence"]["segment"], 9);
  EXPECT_EQ(failed["first_divergence"]["tensor"], "gradient of logits");
  EXPECT_THAT(failed["first_divergence"]["text"].get<std::string>(),
              HasSubstr("loss micro-batch 0 segment 9: gradient of logits"));
  EXPECT_EQ(json["refused"][0]["model"], "narrow");
  EXPECT_EQ(json["refused"][0]["name"], "tensor=4");
  EXPECT_EQ(json["reference"]["models"][0]["losses"].size(), 1u);
  EXPECT_LT(json["bounds"]["base"]["steps"][0]["gradient"].get<double>(), 1e-4);
  EXPECT_LT(json["bounds"]["base"]["steps"][0]["loss"].get<double>(), 1e-5);
}

TEST_F(Verify, ReportsAsJunit) {
  VerifyReport report = mixed_report();
  report.layouts[0].findings = {};
  report.layouts[0].failure = "rank 0: <&> \"quoted\"";
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(to_junit(report).c_str()));
  const pugi::xml_node suites = document.child("testsuites");
  EXPECT_EQ(suites.attribute("tests").as_int(), 6);
  EXPECT_EQ(suites.attribute("failures").as_int(), 2);
  EXPECT_EQ(suites.attribute("errors").as_int(), 1);
  EXPECT_EQ(suites.attribute("skipped").as_int(), 1);
  const pugi::xml_node base = suites.child("testsuite");
  EXPECT_STREQ(base.attribute("name").value(), "plait.verify.base");
  EXPECT_STREQ(base.child("testcase").child("error").attribute("message").value(), "rank 0: <&> \"quoted\"");
  const pugi::xml_node failed = base.find_child_by_attribute("testcase", "name", "data=2");
  EXPECT_THAT(failed.child("failure").attribute("message").value(), HasSubstr("logits"));
  EXPECT_THAT(failed.child("failure").text().get(), HasSubstr("gradient: largest relative error"));
  const pugi::xml_node narrow = base.next_sibling("testsuite");
  EXPECT_THAT(narrow.find_child_by_attribute("testcase", "name", "tensor=4").child("skipped").attribute("message").value(),
              HasSubstr("must divide model.kv_heads=2"));
}

TEST_F(Verify, ReportsAsATableOfAlignedLines) {
  const std::string lines = table_of(200, verify_request({"data=1", "pipeline=2 data=2 schedule=zb-h1 zero=1"})).text;
  EXPECT_THAT(lines, AllOf(HasSubstr("2 layouts of 1 model"), HasSubstr("all 2 layouts agree"), HasSubstr("zb-h1"),
                           Not(HasSubstr("FAILED"))));
  std::set<std::size_t> ends;  // of the verdict's column
  for (std::size_t at = 0; (at = lines.find("  ok  ", at)) != std::string::npos; ++at) ends.insert(at - lines.rfind('\n', at));
  EXPECT_EQ(ends.size(), 1u) << lines;
}

// The counts in the first line and the device in the last one make these as long as they are.
TEST_F(Verify, FoldsItsLinesInANarrowTerminal) {
  const VerifyRequest request = verify_request(
      {"data=1", "tensor=4"}, {}, {"verify.variants=[\"narrow: model.kv_heads=2\"]", "verify.lr=10", "verify.steps=3"});
  const auto [report, lines] = table_of(60, request);
  ASSERT_TRUE(report.weak());
  EXPECT_THAT(lines,
              AllOf(HasSubstr("3 layouts of 2 models against the serial run: 3 steps of 4\n    sequences of 16 tokens\n"),
                    HasSubstr("\nweak: base: the bound of"), HasSubstr("1 refused")));
  std::istringstream all(lines);
  for (std::string line; std::getline(all, line);) EXPECT_LE(display_width(line), 60) << line;
}

}  // namespace
}  // namespace plait::verify::test
