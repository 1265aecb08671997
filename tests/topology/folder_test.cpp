// Real machines' files in a folder that PLAIT_TOPOLOGIES names, with an expected.json beside them: for each file (by its path)
// the `ids` of its GPUs, the nominal `matrix` in GB/s by these, `fast_links` ("0-1 NV2"), `suspect` when there must be
// warnings, or `invalid` when it must be refused.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "topology/topology_json.h"
#include "topology_files.h"

namespace plait::topology {
namespace {

using Json = nlohmann::json;

void expect_matrix(const Routes& routes, const Json& expected) {
  std::set<std::string> fast;
  for (int from : routes.gpus()) {
    const std::vector<Path> paths = routes.paths_from(from);
    const int a = routes.graph().nodes[static_cast<std::size_t>(from)].index;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const int to = routes.gpus()[i], b = routes.graph().nodes[static_cast<std::size_t>(to)].index;
      if (from == to) continue;
      const PairSummary summary = routes.summary(from, to, paths[i]);
      EXPECT_NEAR(summary.gb_per_s, expected["matrix"][static_cast<std::size_t>(a)][static_cast<std::size_t>(b)].get<double>(),
                  1e-6)
          << a << "-" << b;
      std::string link = summary.link;
      // A pasted matrix does not tell lanes to a switch from lanes to the other GPU.
      if (expected["format"] == "topo-m" && link.starts_with("NVS")) link.erase(2, 1);
      if (a < b && (link.starts_with("NV") || link.starts_with("XGMI")))
        fast.insert(std::to_string(a) + "-" + std::to_string(b) + " " + link);
    }
  }
  EXPECT_EQ(fast, expected["fast_links"].get<std::set<std::string>>());
}

TEST(TopologyFolder, EveryFileIsWhatItIsExpectedToBe) {
  const char* folder = std::getenv("PLAIT_TOPOLOGIES");
  if (!folder) GTEST_SKIP() << "PLAIT_TOPOLOGIES names no folder with topologies and their expected.json";
  const Json files = Json::parse(test::text_of(std::string(folder) + "/expected.json"));
  int checked = 0;
  for (const auto& [path, expected] : files.items()) {
    if (!expected.is_object()) continue;
    SCOPED_TRACE(path);
    ++checked;
    const std::string text = test::text_of(std::string(folder) + "/" + path);
    if (expected.value("invalid", false)) {
      const std::string why = test::refusal(text);
      EXPECT_NE(why.find(expected["error"].get<std::string>()), std::string::npos) << why;
      continue;
    }
    try {
      const Imported imported = import_topology(text, path);
      const Routes routes(imported.graph);
      std::vector<int> ids;
      for (int gpu : routes.gpus()) ids.push_back(imported.graph.nodes[static_cast<std::size_t>(gpu)].index);
      EXPECT_EQ(ids, expected["ids"].get<std::vector<int>>());
      EXPECT_EQ(imported.warnings.empty(), !expected["suspect"].get<bool>())
          << testing::PrintToString(test::messages(imported));
      expect_matrix(routes, expected);
      EXPECT_EQ(import_topology(to_json_text(imported.graph), path).graph, imported.graph);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_GT(checked, 0);
}

}  // namespace
}  // namespace plait::topology
