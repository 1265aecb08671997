// `plait bench p2p --check` on results that are made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/p2p_bars.h"
#include "bench/p2p_table.h"

namespace plait::bench::test {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr std::size_t mega = std::size_t{1} << 20;

Json row(std::size_t bytes, double microseconds, double both_of_one) {
  const double rate = static_cast<double>(bytes) / microseconds / 1e3;
  return {{"bytes", bytes},
          {"microseconds", microseconds},
          {"microseconds_min", microseconds},
          {"microseconds_max", microseconds},
          {"gb_per_s", rate},
          {"both_ways_gb_per_s", both_of_one * rate},
          {"latency_microseconds", microseconds + 3},
          {"vs_nccl", 1.0}};
}

Json timed_method(const std::string& transport, const std::string& mover, double factor, double both_of_one) {
  Json results = Json::array();
  for (const auto& [bytes, microseconds] :
       {std::pair(std::size_t{4096}, 6.7), {mega, 9.5}, {16 * mega, 50.0}, {64 * mega, 180.0}, {256 * mega, 680.0}}) {
    results.push_back(row(bytes, microseconds * factor, both_of_one));
  }
  return {{"transport", transport}, {"mover", mover}, {"available", true}, {"results", std::move(results)}};
}

Json products(const std::string& transport, const std::string& mover, double from, double to) {
  return {{"transport", transport},
          {"mover", mover},
          {"message_bytes", 16 * mega},
          {"messages", 720},
          {"messages_per_product", 18.0},
          {"equal_load", true},
          {"from_tflops", 700.0},
          {"from_slowdown", from},
          {"from_slowdown_min", from - 0.01},
          {"from_slowdown_max", from + 0.01},
          {"to_tflops", 700.0},
          {"to_slowdown", to},
          {"to_slowdown_min", to - 0.01},
          {"to_slowdown_max", to + 0.01},
          {"message_gb_per_s", 210.0},
          {"arrived", 1.0},
          {"most_gb_per_s", 240.0},
          {"alone_tflops", {{"from", 770.0}, {"to", 770.0}}},
          {"noise", {{"from", 0.003}, {"to", 0.004}}}};
}

// As on two H200, where everything is as promised.
Json promised() {
  Json beside = Json::array({products("direct", "copy_engine", 0.05, 0.06), products("direct", "sm_write", 0.2, 0.2),
                             products("nccl", "-", 0.1, 0.13)});
  Json pair{{"from", 0},
            {"to", 1},
            {"link", "NV18 (switch)"},
            {"nvlinks", 18},
            {"peer_access", true},
            {"plain_copy", {{"bytes", 256 * mega}, {"microseconds", 7000.0}, {"gb_per_s", 38.0}}},
            {"methods", Json::array({timed_method("direct", "copy_engine", 1, 1.95),
                                     timed_method("direct", "sm_write", 1.4, 1.8), timed_method("nccl", "-", 1.1, 1.7)})},
            {"products", {{"dim", 8192}, {"dtype", "bf16"}, {"products", 30}, {"rounds", 5}, {"beside", std::move(beside)}}}};
  return {{"benchmark", "p2p"},
          {"mode", "threads"},
          {"ranks", 2},
          {"device", "NVIDIA H200"},
          {"backend", "NCCL"},
          {"rounds", 5},
          {"notes", Json::array()},
          {"pairs", Json::array({std::move(pair)})}};
}

std::vector<std::string> missed(const Json& result) {
  return to_json(evaluate_bars(result))["missed"].get<std::vector<std::string>>();
}

TEST(BenchBars, AllAreMetByWhatWasPromised) {
  EXPECT_THAT(missed(promised()), IsEmpty());
  const Json check = to_json(evaluate_bars(promised()));
  EXPECT_EQ(check["passed"], true);
  EXPECT_EQ(check["bars"].size(), 10u);
}

TEST(BenchBars, TheLibraryMustBeBeatenByEightPercent) {
  Json result = promised();
  result["pairs"][0]["methods"][2] = timed_method("nccl", "-", 1.07, 1.7);
  EXPECT_THAT(missed(result), ElementsAre(AllOf(HasSubstr("0 -> 1"), HasSubstr("16 MB"), HasSubstr("1.08 x NCCL")),
                                          HasSubstr("64 MB"), HasSubstr("256 MB")));
}

TEST(BenchBars, SmallMessagesMustBeQuick) {
  Json result = promised();
  result["pairs"][0]["methods"][0]["results"][0]["microseconds"] = 7.01;
  EXPECT_THAT(missed(result), ElementsAre(AllOf(HasSubstr("4 KB"), HasSubstr("7.01"))));
  result["pairs"][0]["methods"][0]["results"][1]["microseconds"] = 10.1;
  EXPECT_THAT(missed(result), ElementsAre(HasSubstr("1 MB, us"), HasSubstr("4 KB")));
  // The best mailbox counts, and the library is none.
  result["pairs"][0]["methods"][2]["results"][0]["microseconds"] = 1.0;
  EXPECT_EQ(missed(result).size(), 2u);
  result["pairs"][0]["methods"][1]["results"][0]["microseconds"] = 5.0;
  EXPECT_THAT(missed(result), ElementsAre(HasSubstr("1 MB")));
}

TEST(BenchBars, BothDirectionsMustRunAtOnce) {
  Json result = promised();
  result["pairs"][0]["methods"][0] = timed_method("direct", "copy_engine", 1, 1.89);
  EXPECT_THAT(missed(result),
              ElementsAre(HasSubstr("both ways at 16 MB"), HasSubstr("both ways at 64 MB"), HasSubstr("both ways at 256 MB")));
}

TEST(BenchBars, ProductsMayBeSlowedHalfAsMuchAsByTheLibrary) {
  Json result = promised();
  // Of the end that suffers more.
  result["pairs"][0]["products"]["beside"][0] = products("direct", "copy_engine", 0.01, 0.07);
  EXPECT_THAT(missed(result), ElementsAre(AllOf(HasSubstr("slowdown"), HasSubstr("0.07"), HasSubstr("0.065"))));
}

Json& beside(Json& result, std::size_t row) { return result["pairs"][0]["products"]["beside"][row]; }
std::vector<std::string> undecided(const Json& result) {
  return to_json(evaluate_bars(result))["undecided"].get<std::vector<std::string>>();
}

TEST(BenchBars, OnlyMailboxesThatMovedAsMuchAsTheLibraryAndInTimeCompare) {
  Json result = promised();
  beside(result, 0)["messages"] = 100;
  // sm_write is left, and slows more.
  EXPECT_THAT(missed(result), ElementsAre(AllOf(HasSubstr("slowdown"), HasSubstr("0.2"), HasSubstr("0.065"))));
  result = promised();
  beside(result, 0)["arrived"] = 0.89;
  EXPECT_THAT(missed(result), ElementsAre(AllOf(HasSubstr("slowdown"), HasSubstr("0.2"), HasSubstr("0.065"))));
  beside(result, 1)["arrived"] = 0.5;
  EXPECT_THAT(missed(result), ElementsAre(AllOf(HasSubstr("slowdown"), HasSubstr("not measured"))));
  // Then a slowdown of the library's in the noise is no excuse.
  beside(result, 2) = products("nccl", "-", 0.001, 0.001);
  EXPECT_THAT(missed(result), ElementsAre(AllOf(HasSubstr("slowdown"), HasSubstr("not measured"))));
}

TEST(BenchBars, ThereIsNoVerdictWithinTheNoise) {
  Json result = promised();
  beside(result, 2) = products("nccl", "-", 0.001, 0.008);  // half of it is the noise
  EXPECT_THAT(missed(result), IsEmpty());
  EXPECT_THAT(undecided(result), ElementsAre(AllOf(HasSubstr("0 -> 1: slowdown"), HasSubstr("0.40 %, is within the noise"),
                                                   HasSubstr("; --product-rounds 6 would tell"))));
  EXPECT_EQ(to_json(evaluate_bars(result))["passed"], true);
  result["check"] = to_json(evaluate_bars(result));
  EXPECT_THAT(p2p_table(result, false), AllOf(HasSubstr("9 of 10 bars met"), HasSubstr("no verdict: 0 -> 1: slowdown")));
  beside(result, 2) = products("nccl", "-", 0.001, 0.009);
  EXPECT_THAT(undecided(result), IsEmpty());
  EXPECT_THAT(missed(result), ElementsAre(HasSubstr("slowdown")));
  beside(result, 0) = products("direct", "copy_engine", -0.002, 0.004);
  EXPECT_THAT(missed(result), IsEmpty());
}

TEST(BenchBars, ThereIsNoVerdictWhenTheLibraryDidNotComeInTime) {
  Json result = promised();
  beside(result, 2)["arrived"] = 0.25;
  EXPECT_THAT(missed(result), IsEmpty());
  EXPECT_THAT(undecided(result), ElementsAre(HasSubstr("only 25 % of NCCL's messages")));
}

TEST(BenchBars, TheTableSaysWhichMethodsDoNotCompare) {
  Json result = promised();
  EXPECT_THAT(p2p_table(result, false), AllOf(HasSubstr("5.0 % (4.0 to 6.0)"), HasSubstr("noise 0.3 %"),
                                              HasSubstr("18.0 messages per product, 210.0 GB/s of 240.0"),
                                              Not(HasSubstr("does not compare")), Not(HasSubstr("only "))));
  beside(result, 1)["equal_load"] = false;
  beside(result, 0)["arrived"] = 0.5;
  EXPECT_THAT(p2p_table(result, false),
              AllOf(HasSubstr("fewer than the others: does not compare"), HasSubstr("only 50 % of them while products ran")));
}

TEST(BenchBars, TheCliffMustBeSeenWhereRanksAreThreads) {
  Json result = promised();
  result["pairs"][0]["plain_copy"]["gb_per_s"] = 390.0;  // somebody had enabled peer access before
  EXPECT_THAT(missed(result), ElementsAre(HasSubstr("plain copy")));
  result["pairs"][0].erase("plain_copy");
  EXPECT_THAT(missed(result), ElementsAre(AllOf(HasSubstr("plain copy"), HasSubstr("not measured"))));
  result["mode"] = "processes";
  EXPECT_THAT(missed(result), IsEmpty());
}

TEST(BenchBars, WhatWasNotMeasuredIsMissed) {
  Json result = promised();
  result["pairs"][0].erase("products");
  result["pairs"][0]["methods"].erase(2);
  const auto texts = missed(result);
  ASSERT_EQ(texts.size(), 4u);
  for (const std::string& text : texts) EXPECT_THAT(text, HasSubstr("not measured"));
  result["pairs"][0]["nvlinks"] = 0;
  EXPECT_THAT(missed(result), ElementsAre(AllOf(HasSubstr("NVLink"), HasSubstr("not measured"))));
}

TEST(BenchBars, TheTableSaysWhatIsMissed) {
  Json result = promised();
  result["pairs"][0]["methods"][0]["results"][0]["microseconds"] = 7.01;
  result["pairs"][0]["warning"] = "warning: 0 -> 1: no peer access is in use";
  result["check"] = to_json(evaluate_bars(result));
  for (const bool brief : {false, true}) {
    EXPECT_THAT(p2p_table(result, brief),
                AllOf(HasSubstr("NV18 (switch)"), HasSubstr("sm_write"), HasSubstr("38.0 GB/s"), HasSubstr("no peer access"),
                      HasSubstr("9 of 10 bars met"), HasSubstr("missed: 0 -> 1: best mailbox for 4 KB")));
  }
}

}  // namespace
}  // namespace plait::bench::test
