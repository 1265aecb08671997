// The table of `plait bench p2p`, of a result that is made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/p2p_benchmark.h"

namespace plait::bench::test {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;
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

// As on two H200.
Json example() {
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

Json& beside(Json& result, std::size_t row) { return result["pairs"][0]["products"]["beside"][row]; }

TEST(BenchP2pTable, SaysWhichMethodsDoNotCompare) {
  Json result = example();
  EXPECT_THAT(p2p_table(result, false, 200), AllOf(HasSubstr("5.0 % (4.0 to 6.0)"), HasSubstr("noise 0.3 %"),
                                                   HasSubstr("18.0 messages per product, 210.0 GB/s of 240.0"),
                                                   Not(HasSubstr("not comparable")), Not(HasSubstr("only "))));
  beside(result, 1)["equal_load"] = false;
  beside(result, 0)["arrived"] = 0.5;
  EXPECT_THAT(p2p_table(result, false, 200), AllOf(HasSubstr("fewer than the others, so not comparable"),
                                                   HasSubstr("only 50 % of them arrived while products ran")));
}

TEST(BenchP2pTable, HasTheCliffAndTheWarning) {
  Json result = example();
  result["pairs"][0]["warning"] = "warning: 0 -> 1: peer access is not used";
  for (const bool brief : {false, true}) {
    EXPECT_THAT(p2p_table(result, brief, 200), AllOf(HasSubstr("NV18 (switch)"), HasSubstr("sm_write"), HasSubstr("38.0 GB/s"),
                                                     HasSubstr("peer access is not used")));
  }
}

}  // namespace
}  // namespace plait::bench::test
