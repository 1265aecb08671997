// Real machines' files in the folder PLAIT_TOPOLOGIES, with the best placements of each in an expected.json beside them: for
// `pipeline_chain` and `tensor_pairs` the `best` weakest link, for `tensor2_pipeline` the best two.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "placement_answers.h"

namespace plait::plan {
namespace {

TEST(PlacementFolder, PlacementsAreTheBestThereAre) {
  const char* folder = std::getenv("PLAIT_TOPOLOGIES");
  if (!folder) GTEST_SKIP() << "PLAIT_TOPOLOGIES names no folder with topologies and their expected.json";
  const auto files = nlohmann::json::parse(topology::test::text_of(std::string(folder) + "/expected.json"));
  int checked = 0;
  for (const auto& [path, expected] : files.items()) {
    if (!expected.is_object() || expected.value("invalid", false)) continue;
    SCOPED_TRACE(path);
    topology::Fabric fabric(topology::import_topology(std::string(folder) + "/" + path).graph);
    EXPECT_NEAR(test::weakest_of_chain(fabric, test::pipeline_chain(fabric), 1),
                expected["pipeline_chain"]["best"].get<double>(), 1e-6);
    EXPECT_NEAR(test::weakest_of_pairs(fabric, test::tensor_pairs(fabric)), expected["tensor_pairs"]["best"].get<double>(),
                1e-6);
    ++checked;
    const auto& both = expected["tensor2_pipeline"];
    if (!both.is_object()) continue;
    const PlacementResult placed = test::tensor2_pipeline(fabric);
    EXPECT_NEAR(test::weakest_of_pairs(fabric, placed), both["best"][0].get<double>(), 1e-6);
    if (both["best"].size() < 2 || !both["best"][1].is_number()) continue;  // a single stage
    EXPECT_NEAR(test::weakest_of_chain(fabric, placed, 2), both["best"][1].get<double>(), 1e-6);
  }
  EXPECT_GT(checked, 0);
}

}  // namespace
}  // namespace plait::plan
