#include "bench/pair_measurements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/device.h"
#include "core/error.h"

namespace plait::bench {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using topology::Graph;
using topology::Node;
using topology::NodeKind;
using topology::PairMeasurement;

// The GPU of number 0 is node 1.
Graph two_gpus() {
  Graph graph;
  for (const int index : {1, 0}) {
    Node node;
    node.kind = NodeKind::gpu;
    node.name = "gpu" + std::to_string(index);
    node.index = index;
    graph.nodes.push_back(node);
  }
  return graph;
}

Json method(const std::string& transport, bool available, double latency_4k, double rate_256m) {
  Json results = Json::array();
  if (available) {
    results.push_back({{"bytes", 268435456}, {"gb_per_s", rate_256m}, {"latency_microseconds", 700.0}});
    results.push_back({{"bytes", 4096}, {"gb_per_s", 0.5}, {"latency_microseconds", latency_4k}});
  }
  return {{"transport", transport}, {"mover", "copy_engine"}, {"available", available}, {"results", results}};
}

Json result_of(std::vector<Json> methods) { return {{"pairs", {{{"from", 0}, {"to", 1}, {"methods", methods}}}}}; }

TEST(PairMeasurements, AreTheBestThatAMailboxReached) {
  std::vector<std::string> notes;
  const Json result = result_of({method("direct", true, 6.0, 390), method("direct", true, 5.0, 350), method("vmm", false, 0, 0),
                                 method("host", true, 20, 25), method("nccl", true, 3.0, 400)});
  EXPECT_THAT(pair_measurements(result, two_gpus(), 0, notes), ElementsAre(PairMeasurement{1, 0, 390, 5.0}));
  EXPECT_THAT(notes, IsEmpty());
}

TEST(PairMeasurements, OfTheLibraryAreNamed) {
  std::vector<std::string> notes;
  const Json result = result_of({method("direct", false, 0, 0), method("nccl", true, 9.0, 20)});
  EXPECT_THAT(pair_measurements(result, two_gpus(), 0, notes), ElementsAre(PairMeasurement{1, 0, 20, 9.0}));
  EXPECT_THAT(notes, ElementsAre(HasSubstr("NCCL")));
}

TEST(PairMeasurements, WhatCouldNotBeMeasuredIsLeftOutAndNamed) {
  std::vector<std::string> notes;
  EXPECT_THAT(pair_measurements(result_of({method("direct", false, 0, 0)}), two_gpus(), 0, notes), IsEmpty());
  EXPECT_THAT(notes, ElementsAre(HasSubstr("nothing could be measured")));
}

TEST(PairMeasurements, OfOtherRanksOrShapesAreAnError) {
  std::vector<std::string> notes;
  EXPECT_THROW(pair_measurements(result_of({}), Graph{}, 0, notes), CommError);
  EXPECT_THROW(pair_measurements(result_of({}), two_gpus(), 1, notes), CommError);
  EXPECT_THROW(pair_measurements(Json::object(), two_gpus(), 0, notes), CommError);
  EXPECT_THROW(pair_measurements(result_of({{{"transport", "direct"}}}), two_gpus(), 0, notes), CommError);
}

TEST(PairMeasurements, NeedTwoGpus) {
  if (cuda_device_count() >= 2) GTEST_SKIP() << "this machine has them";
  Graph graph = two_gpus();
  EXPECT_THROW(measure_pairs(graph, [](const std::string&) {}), ConfigError);
}

}  // namespace
}  // namespace plait::bench
